// Numbers on top: metrics at the start and the end, time by phase, and the difference of engine and trainer.
const ENDS = {
  reward: "reward",
  reward_std: "reward std in a group",
  grad_norm: "gradient norm",
  kl: "KL to the reference",
  "completions/mean_length": "tokens a completion",
};
const SOUND = 1.05; // mean of exp|d| above which importance sampling by the engine's log-probs is not sound
const LEAST = 0.005; // share of a step below which a phase is part of the rest

function drawSummary() {
  document.querySelectorAll(".figures[data-run]").forEach(box => box.append(...tiles(data.runs[Number(box.dataset.run)])));
  byId("bills").replaceChildren(...data.runs.filter(run => Object.keys(run.bill).length).map(bars));
  byId("timed").hidden = !byId("bills").childElementCount;
  const ratios = data.runs.flatMap(run => (run.figures["watch/engine_ratio"] || []).map(point => point[1]));
  const most = Math.max(...ratios);
  byId("compared").hidden = !ratios.length;
  byId("compared").open = most > SOUND;
  byId("compared").firstElementChild.textContent =
    `Rollout engine and trainer ${most > SOUND ? "differ" : "agree"}: mean of exp|d| of their log-probs at most ${figure(most)}`;
}

function tiles(run) {
  const logged = run.logged ? `${counted(run.logged, "completion")} logged` : "completions were not logged";
  const evaluated = run.evaluated ? `, ${run.evaluated.toLocaleString("en")} of evaluation not shown` : "";
  const shown = [tile("steps", String(run.steps ?? "").replace("/", " of "), logged + evaluated)];
  for (const [name, label] of Object.entries(ENDS)) {
    const values = (run.figures[name] || []).map(point => point[1]);
    const size = Math.max(2, Math.floor(values.length / 5));
    const [first, last] = [values.slice(0, size), values.slice(-size)].map(part => part.reduce((sum, value) => sum + value, 0) / part.length);
    if (values.length >= 10) shown.push(tile(label, `${short(first)} → ${short(last)}`, "first → last fifth"));
  }
  const seconds = (run.figures.step_time || []).map(point => point[1]).sort((a, b) => a - b);
  if (seconds.length) shown.push(tile("seconds a step", short(seconds[seconds.length >> 1]), "median"));
  return shown;
}

function short(value) {
  return figure(Number(value.toPrecision(3)));
}

function tile(label, value, note) {
  return h("div.figure", {}, h("span.label", {}, label), h("span.value", {}, value), h("span.note", {}, note));
}

function bars(run) {
  const total = Object.values(run.bill).reduce((sum, seconds) => sum + seconds, 0);
  const long = Object.entries(run.bill).filter(([, seconds]) => seconds >= LEAST * total);
  const rest = total - long.reduce((sum, [, seconds]) => sum + seconds, 0);
  const shown = rest >= LEAST * total ? [...long, ["rest", rest]] : long;
  const rows = shown.map(([label, seconds]) =>
    h("div.bar", {}, h("span", {}, label), h("i", { style: `width: ${((60 * seconds) / total).toFixed(1)}%` }),
      h("b", {}, `${Math.round((100 * seconds) / total)} %`), " ", h("span.soft", {}, `${short(seconds)} s`)));
  const name = data.runs.length > 1 ? [h("p.soft", {}, h("i.dot", { style: `background:${runColour(data.runs.indexOf(run))}` }), run.name)] : [];
  return h("section.bill", {}, ...name, ...rows);
}
