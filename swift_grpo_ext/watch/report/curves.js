const WIDTH = 400, HEIGHT = 190, LEFT = 46, RIGHT = 12, TOP = 8, BOTTOM = 24;

// Metrics by logged name: title and drawing options.
const FIGURES = {
  reward_std: ["standard deviation of the reward inside a group"],
  frac_reward_zero_std: ["groups whose rewards are all equal", { percent: true }],
  reward_coverage: ["completions that got a reward", { percent: true }],
  kl: ["KL to the reference model (nats a token)"],
  grad_norm: ["gradient norm before clipping"],
  "watch/moved": ["parameters that moved", { percent: true }],
  "completions/mean_length": ["completion length (tokens): mean and range", { edges: ["completions/min_length", "completions/max_length"] }],
  "completions/clipped_ratio": ["completions cut at the length limit", { percent: true }],
  "clip_ratio/region_mean": ["tokens whose ratio was clipped", { percent: true }],
  "entropy/mean": ["entropy (nats a token)"],
  "watch/entropy": ["entropy at the sampled tokens (nats a token)"],
  loss: ["loss"],
  learning_rate: ["learning rate", { exact: true }], // set, not sampled: a running mean would show values that never occurred
  step_time: ["step time (seconds)"],
  "watch/engine_ratio": ["mean of exp|d|, d the difference of a token's log-probs", { exact: true, place: "engine" }],
};

function drawCurves() {
  const drawn = charts();
  const flat = drawn.filter(chart => chart.flat && chart.place === "curves");
  for (const place of ["rewards", "curves", "engine"])
    byId(place)?.replaceChildren(...drawn.filter(chart => chart.place === place && !flat.includes(chart)).map(curve));
  byId("flat").replaceChildren(...flat.map(curve));
  byId("folded").hidden = !flat.length;
  byId("folded").firstElementChild.textContent = `${flat.length} that did not change: ${flat.map(chart => chart.title).join(", ")}`;
}

function charts() {
  const names = [...new Set(data.runs.flatMap(run => run.rewards))];
  const each = data.runs.length === 1 && names.length > 1 ? names : [];
  const mean = name => `rewards/${name}/mean`;
  const drawn = [
    { title: "held-out reward: mean and 95 % interval", place: "rewards", lines: heldOut(each) },
    { title: "reward", place: "rewards", lines: [...lines("reward", each.length ? "total" : ""), ...each.flatMap(name => lines(mean(name), name))] },
    ...names.map(name => ({ title: `${name}: mean ± standard deviation`, lines: lines(mean(name), "", [`rewards/${name}/std`]) })),
    ...Object.entries(FIGURES).map(([name, [title, options]]) => ({ title, ...options, lines: lines(name, "", options?.edges) })),
  ];
  return drawn.filter(chart => chart.lines.length).map(chart => ({ place: "curves", flat: chart.lines.every(isFlat), ...chart }));
}

function isFlat(line) {
  return line.values.every(value => value === line.values[0]);
}

// The metric in each run that has it, with a band where its edges were logged at the same steps.
function lines(name, label, edges = []) {
  return data.runs.flatMap((run, number) => {
    const points = run.figures[name];
    if (!points) return [];
    const [steps, values] = [0, 1].map(i => points.map(point => point[i]));
    const ends = edges.map(edge => (run.figures[edge] || []).map(point => point[1])).filter(end => end.length === values.length);
    const [low, high] = ends.length === 2 ? ends : ends.length ? [-1, 1].map(sign => values.map((value, i) => value + sign * ends[0][i])) : [[], []];
    return [{ label, run: number, steps, values, low, high }];
  });
}

// Each reward of a single run; the total of several runs.
function heldOut(names) {
  return data.runs.flatMap((run, number) => ["reward", ...names].flatMap(name => {
    const scores = run.held_out.filter(score => score.reward === name);
    const of = key => scores.map(score => score[key]);
    const label = !names.length ? "" : name === "reward" ? "total" : name;
    return scores.length ? [{ label, run: number, steps: of("step"), values: of("mean"), low: of("low"), high: of("high") }] : [];
  }));
}

function curve(chart) {
  const colours = chart.lines.map((line, i) => runColour(data.runs.length > 1 ? line.run : i));
  const scale = scaleOf(chart);
  const svg = h("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": chart.title });
  svg.append(...axes(chart, scale));
  chart.lines.forEach((line, i) => svg.append(...strokes(line, colours[i], scale, chart)));
  const box = h("div.curve", {}, h("h3", {}, chart.title), svg);
  if (chart.lines.length > 1) box.append(legend(chart, colours));
  follow(box, svg, chart, colours, scale);
  return box;
}

function scaleOf({ lines, percent: shares }) {
  const steps = lines.flatMap(line => [line.steps[0], line.steps[line.steps.length - 1]]);
  let low = Infinity, high = -Infinity;
  for (const line of lines)
    for (const list of [line.values, line.low, line.high])
      for (const value of list) {
        low = Math.min(low, value);
        high = Math.max(high, value);
      }
  if (shares) [low, high] = [0, 1];
  if (low === high) [low, high] = [low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2];
  const margin = shares ? 0 : 0.04 * (high - low);
  [low, high] = [low - margin, high + margin];
  const first = Math.min(...steps), last = Math.max(...steps, first + 1);
  return {
    low, high, first, last,
    x: step => LEFT + ((step - first) / (last - first)) * (WIDTH - LEFT - RIGHT),
    y: value => HEIGHT - BOTTOM - ((value - low) / (high - low)) * (HEIGHT - TOP - BOTTOM),
  };
}

function axes(chart, scale) {
  const nodes = [];
  for (const value of ticks(scale.low, scale.high, 5)) {
    const y = scale.y(value);
    nodes.push(h("line.grid", { x1: LEFT, x2: WIDTH - RIGHT, y1: y, y2: y }));
    nodes.push(h("text", { x: LEFT - 6, y: y + 4, "text-anchor": "end" }, chart.percent ? percent(value) : figure(value)));
  }
  for (const step of ticks(scale.first, scale.last, 5).filter(Number.isInteger))
    nodes.push(h("text", { x: scale.x(step), y: HEIGHT - 6, "text-anchor": "middle" }, figure(step)));
  return nodes;
}

function ticks(low, high, about) {
  const raw = (high - low) / about;
  const power = 10 ** Math.floor(Math.log10(raw));
  const size = [1, 2, 5, 10].map(factor => factor * power).find(step => step >= raw);
  const values = [];
  for (let i = Math.ceil(low / size - 1e-9); i * size <= high + 1e-9 * size; i++) values.push(Number((i * size).toPrecision(12)));
  return values;
}

function strokes(line, colour, scale, { exact }) {
  const nodes = [];
  if (line.low.length) {
    const back = line.steps.map((_, i) => i).reverse();
    const edge = path(line.steps, line.high, scale) + back.map(i => `L${point(line.steps[i], line.low[i], scale)}`).join("") + "Z";
    nodes.push(h("path", { d: edge, style: `fill:${colour};opacity:.14` }));
  }
  const few = exact || line.steps.length < 20;
  const style = `fill:none;stroke:${colour};stroke-linejoin:round;`;
  nodes.push(h("path", { d: path(line.steps, line.values, scale), style: style + (few ? "stroke-width:1.8" : "stroke-width:1;opacity:.32") }));
  if (!few) nodes.push(h("path", { d: path(line.steps, runningMean(line.values), scale), style: style + "stroke-width:2" }));
  return nodes;
}

function point(step, value, scale) {
  return `${scale.x(step).toFixed(1)},${scale.y(value).toFixed(1)}`;
}

function path(steps, values, scale) {
  return steps.map((step, i) => (i ? "L" : "M") + point(step, values[i], scale)).join("");
}

// Exponential running mean with bias correction, so that the first mean is the first value.
function runningMean(values, weight = 0.1) {
  let mean = 0, total = 0;
  return values.map(value => {
    mean = (1 - weight) * mean + weight * value;
    total = (1 - weight) * total + weight;
    return mean / total;
  });
}

function labelOf(line) {
  return data.runs.length > 1 ? data.runs[line.run].name : line.label;
}

function legend(chart, colours) {
  const entries = chart.lines.map((line, i) => h("span", {}, h("i.dot", { style: `background:${colours[i]}` }), labelOf(line)));
  return h("div.legend", {}, ...entries);
}

function follow(box, svg, chart, colours, scale) {
  const cursor = h("line.cursor", { y1: TOP, y2: HEIGHT - BOTTOM });
  const tip = h("div.tip");
  const leave = () => [cursor, tip].forEach(node => node.remove());
  svg.addEventListener("mouseleave", leave);
  svg.addEventListener("mousemove", event => {
    const area = svg.getBoundingClientRect();
    const at = ((event.clientX - area.left) / area.width) * WIDTH;
    const pointed = scale.first + ((at - LEFT) / (WIDTH - LEFT - RIGHT)) * (scale.last - scale.first);
    const closest = chart.lines.map(line => line.steps[nearest(line.steps, pointed)]);
    const step = closest.reduce((a, b) => (Math.abs(b - pointed) < Math.abs(a - pointed) ? b : a));
    const shown = value => (chart.percent ? percent(value) : figure(value));
    const rows = chart.lines.map((line, i) =>
      h("div", {}, h("i.dot", { style: `background:${colours[i]}` }), `${labelOf(line)} ${valueAt(line, step, shown)}`));
    tip.replaceChildren(h("div", {}, `step ${step}`), ...rows);
    cursor.setAttribute("x1", scale.x(step));
    cursor.setAttribute("x2", scale.x(step));
    svg.append(cursor);
    box.append(tip);
    const right = event.clientX - area.left > area.width / 2;
    tip.style.left = right ? "auto" : `${event.clientX - area.left + 24}px`;
    tip.style.right = right ? `${area.right - event.clientX + 24}px` : "auto";
    tip.style.top = "34px";
  });
}

// Runs differ in length: a run has no value at a step before its first or after its last.
function valueAt(line, step, shown) {
  const ended = step < line.steps[0] || step > line.steps[line.steps.length - 1];
  return ended ? "–" : shown(line.values[nearest(line.steps, step)]);
}

function nearest(steps, wanted) {
  let low = 0, high = steps.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (steps[middle] < wanted) low = middle;
    else high = middle;
  }
  return Math.abs(steps[high] - wanted) < Math.abs(steps[low] - wanted) ? high : low;
}
