const PER_PAGE = 24;
let chosen = [];
let drawn = 0;

function startGallery() {
  const filters = byId("filters");
  filters.addEventListener("input", choose);
  filters.addEventListener("submit", event => event.preventDefault());
  const end = byId("more");
  const watcher = new IntersectionObserver(seen => {
    if (!seen[seen.length - 1].isIntersecting || drawn >= chosen.length) return;
    showMore();
    watcher.unobserve(end); // it reports only changes: check again if the end is still in view
    watcher.observe(end);
  }, { rootMargin: "1200px" });
  watcher.observe(end);
}

function fillFilters() {
  const rewards = new Set(data.groups.flatMap(group => group.samples.length ? Object.keys(group.samples[0].rewards) : []));
  options(byId("run"), [["", "all"], ...data.runs.map((run, i) => [String(i), run.name])]);
  byId("run").parentElement.hidden = data.runs.length < 2;
  options(byId("figure"), [["advantage", "advantage"], ...[...rewards].map(name => ["r:" + name, name])], rewards.size ? 1 : 0);
  const steps = data.groups.map(group => group.step);
  const first = steps.reduce((a, b) => Math.min(a, b), Infinity), last = steps.reduce((a, b) => Math.max(a, b), -Infinity);
  byId("from").placeholder = first;
  byId("to").placeholder = last;
  byId("regions").hidden = !data.groups.some(group => group.gold.length);
  byId("filters").hidden = !data.groups.length;
}

function options(select, entries, preset = 0) {
  const before = select.options.length ? select.value : entries[preset][0];
  select.replaceChildren(...entries.map(([value, label]) => h("option", { value }, label)));
  select.value = entries.some(([value]) => value === before) ? before : entries[preset][0];
}

function choose() {
  byId("gallery").classList.toggle("undrawn", !byId("drawn").checked);
  const number = id => (byId(id).value === "" ? null : Number(byId(id).value));
  const [run, from, to, least, most] = [byId("run").value, number("from"), number("to"), number("least"), number("most")];
  const text = byId("text").value.toLowerCase();
  const passes = row => {
    const value = figureOf(row);
    if ((least !== null || most !== null) && value === null) return false;
    if (least !== null && value < least) return false;
    if (most !== null && value > most) return false;
    return !text || row.text.toLowerCase().includes(text);
  };
  chosen = [];
  for (const group of data.groups) {
    if (run !== "" && group.run !== Number(run)) continue;
    if ((from !== null && group.step < from) || (to !== null && group.step > to)) continue;
    const rows = distinct(group.samples).filter(passes);
    if (rows.length) chosen.push({ group, rows });
  }
  order();
  count();
  byId("gallery").replaceChildren();
  drawn = 0;
  showMore();
}

// The distinct completions of a group, best advantage first.
function distinct(samples) {
  const merged = new Map();
  for (const sample of samples) {
    const key = JSON.stringify([sample.text, sample.rewards, sample.advantage, sample.read]);
    merged.set(key, { ...sample, count: (merged.get(key)?.count || 0) + 1 });
  }
  return [...merged.values()].sort((a, b) => (b.advantage || 0) - (a.advantage || 0) || b.count - a.count);
}

function figureOf(row) {
  const name = byId("figure").value;
  const value = name === "advantage" ? row.advantage : row.rewards[name.slice(2)];
  return value === undefined ? null : value;
}

function order() {
  const range = rows => {
    const values = rows.map(row => row.advantage || 0);
    return Math.max(...values) - Math.min(...values);
  };
  const keys = {
    last: entry => -entry.group.step,
    spread: entry => -range(entry.rows),
    best: entry => -Math.max(...entry.rows.map(row => figureOf(row) ?? -Infinity)),
    worst: entry => Math.min(...entry.rows.map(row => figureOf(row) ?? Infinity)),
  };
  const key = keys[byId("order").value];
  if (!key) return;
  const keyed = chosen.map(entry => [key(entry), entry]);
  chosen = keyed.sort((a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0)).map(pair => pair[1]);
}

function count() {
  const completions = chosen.reduce((sum, entry) => sum + entry.rows.reduce((part, row) => part + row.count, 0), 0);
  const total = byId("gallery").dataset.total;
  const of = completions < Number(total) ? ` of ${Number(total).toLocaleString("en")} logged` : "";
  byId("count").textContent = `${counted(chosen.length, "group")}, ${counted(completions, "completion")}${of}`;
}

function counted(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

function showMore() {
  const next = chosen.slice(drawn, drawn + PER_PAGE);
  drawn += next.length;
  byId("gallery").append(...next.map(card));
}

function card({ group, rows }) {
  const located = group.gold.length || rows.some(row => row.regions.length);
  const names = group.rewards;
  const head = h("header", {}, h("b", {}, `Step ${group.step}`));
  if (data.runs.length > 1) head.append(h("span", {}, h("i.dot", { style: `background:${runColour(group.run)}` }), data.runs[group.run].name));
  if (group.solution) head.append(h("span", {}, "gold: " + group.solution.slice(0, 200)));
  const pictures = group.images.map((image, i) => picture(image, located && i === group.image_index, group, rows));
  const number = parts => h("th.number", {}, ...parts);
  const table = h("table", {},
    h("thead", {}, h("tr", {}, h("th", {}, "completion"), number(["times"]), ...names.map(name => number(breakable(name))), number(["advantage"]))),
    h("tbody", {}, ...rows.map((row, i) => tableRow(row, names, i, pictures[group.image_index]))));
  const prompt = h("details", {}, h("summary", {}, "prompt"));
  prompt.addEventListener("toggle", () => prompt.childElementCount < 2 && prompt.append(h("pre", {}, data.prompts[group.prompt])));
  const kind = !pictures.length ? ".textonly" : located ? ".located" : "";
  const body = h("div.body" + kind, {}, h("div.scroll", {}, table, prompt));
  if (pictures.length) body.prepend(h("div", {}, ...pictures));
  return h("article.card", {}, head, ...(group.question ? [h("p", {}, group.question)] : []), body);
}

// Allow line breaks after underscores in the head of a narrow column.
function breakable(name) {
  return name.split(/(?<=_)/).flatMap((part, i) => (i ? [h("wbr"), part] : [part]));
}

function tableRow(row, names, index, image) {
  const words = [row.text === "" ? h("div.quiet", {}, "(empty)") : h("div", {}, row.text)];
  if (row.read.length) words.push(h("div.read", {}, row.read.join("\n")));
  const rewards = names.map(name => row.rewards[name] === null ? h("td.number.none", {}, "not scored") : h("td.number", {}, figure(row.rewards[name])));
  const sign = row.advantage > 0 ? ".up" : row.advantage < 0 ? ".down" : "";
  const advantage = row.advantage === null ? "–" : (row.advantage > 0 ? "+" : "") + row.advantage.toFixed(2).replace("-", "−");
  const line = h("tr", {}, h("td.text", {}, ...words), h("td.number", {}, String(row.count)), ...rewards, h("td.number" + sign, {}, advantage));
  if (image && row.regions.length) {
    line.addEventListener("mouseenter", () => focus(image, index));
    line.addEventListener("mouseleave", () => focus(image, null));
  }
  return line;
}

function focus(image, index) {
  image.classList.toggle("focus", index !== null);
  for (const node of image.querySelectorAll(".region")) node.classList.toggle("chosen", node.dataset.row === String(index));
}

function picture(image, located, group, rows) {
  if (image === null) return h("div.missing", {}, "image is gone");
  const shown = h("img", { src: data.images[image], alt: "image of the prompt", decoding: "async" });
  const frame = h("div.picture", {}, shown);
  shown.addEventListener("load", () => {
    const ratio = shown.naturalWidth / shown.naturalHeight;
    if (ratio < 1) frame.style.maxWidth = `${Math.max(24, Math.round(320 * ratio))}px`; // so that tall images fit the screen
    const height = 320 / Math.max(1, ratio);
    for (const place of frame.querySelectorAll(".region")) place.classList.toggle("high", (parseFloat(place.style.top) / 100) * height < 16);
  });
  if (!located) return frame;
  rows.forEach((row, i) => frame.append(...row.regions.map(place => region(place, "predicted", i))));
  frame.append(...group.gold.map(place => region(place, "gold", "")));
  return frame;
}

function region({ at, label }, kind, row) {
  const [x, y] = [0, 1].map(axis => [at[axis], at[axis + 2] ?? at[axis]].map(value => Math.max(-0.5, Math.min(1.5, value))).sort((a, b) => a - b));
  const node = h(`div.region.${kind}${at.length === 2 ? ".point" : ""}`, { "data-row": row, title: `${kind} ${label} ${at.map(figure).join(", ")}` });
  const share = value => `${100 * value}%`;
  node.style.left = share(x[0]);
  node.style.top = share(y[0]);
  if (at.length === 4) {
    node.style.width = share(x[1] - x[0]);
    node.style.height = share(y[1] - y[0]);
  }
  if (label && kind === "gold") node.append(h("span", {}, label));
  return node;
}
