// Completions as groups: ms-swift writes those of a prompt one after another. Rows are as logged, unchecked.
const OF_PROMPT = ["step", "prompt", "solution", "images", "question", "gold"];
const OTHERS = new Set([...OF_PROMPT, "completion", "advantages", "regions", "read", "reason", "num_turns", "entropy", "split", "of_prompt"]);
const MOST_REGIONS = 300;

function readGroups() {
  data.groups = data.runs.flatMap((run, number) => groupsOf(run).map(group => ({ ...group, run: number })));
  const scoring = new Set(data.groups.flatMap(group => [...group.scored]));
  for (const group of data.groups) // rewards that apply to it: one that scores only other prompts is of another task
    group.rewards = Object.keys(group.samples[0].rewards).filter(name => group.scored.has(name) || !scoring.has(name));
}

function groupsOf(run) {
  const groups = [];
  const [iterations, steps, accumulation] = run.updates.map(value => Number(value) || 1);
  const again = iterations > 1 || steps > accumulation; // a rollout is used for several steps, and logged in each
  let last = "";
  for (const rows of stepsOf(run.completions)) {
    const key = JSON.stringify(rows.map(row => [row.prompt, row.completion, row.advantages]));
    if (again && key === last) continue;
    last = key;
    let group = null;
    for (const row of rows) {
      const prompt = JSON.stringify(OF_PROMPT.map(name => row[name]));
      if (!group || group.key !== prompt || group.samples.length >= run.size) groups.push((group = groupOf(row, prompt)));
      const sample = sampleOf(row);
      group.samples.push(sample);
      for (const [name, value] of Object.entries(sample.rewards)) if (value !== null) group.scored.add(name);
    }
  }
  return groups;
}

function stepsOf(rows) {
  const steps = [];
  for (const row of rows) {
    const newest = steps[steps.length - 1];
    if (newest && newest[0].step === row.step) newest.push(row);
    else steps.push([row]);
  }
  return steps;
}

function groupOf(row, key) {
  const regions = objectOf(row.regions);
  return {
    key, samples: [], scored: new Set(), step: row.step, prompt: row.prompt, images: row.images, mean: row.of_prompt,
    asked: JSON.stringify([row.prompt, row.images, row.gold]),
    question: textOf(row.question), solution: textOf(row.gold) || textOf(row.solution),
    gold: regionsOf(regions.gold), image_index: Number.isInteger(regions.image) ? regions.image : 0,
  };
}

function sampleOf(row) {
  const rewards = {};
  for (const [name, value] of Object.entries(row))
    if (!OTHERS.has(name) && (value === null || typeof value === "number")) rewards[name] = value;
  const [read, reasons] = [objectOf(row.read), objectOf(row.reason)];
  const said = [...new Set([...Object.keys(read), ...Object.keys(reasons)])].map(name => {
    const parts = [textOf(read[name]) && `read ${textOf(read[name])}`, textOf(reasons[name])];
    return `${name}: ${parts.filter(Boolean).join("; ")}`;
  });
  const advantage = typeof row.advantages === "number" ? row.advantages : null;
  return { text: textOf(row.completion), rewards, advantage, regions: regionsOf(objectOf(row.regions).predicted), read: said };
}

// Boxes (left, top, right, bottom) and points (x, y) in fractions of the image.
function regionsOf(places) {
  const fits = at => Array.isArray(at) && [2, 4].includes(at.length) && at.every(Number.isFinite);
  const known = (Array.isArray(places) ? places : []).map(objectOf).filter(place => fits(place.at));
  return known.slice(0, MOST_REGIONS).map(({ at, label }) => ({ at, label: textOf(label).slice(0, 80) }));
}

function objectOf(value) {
  return value && typeof value === "object" && !Array.isArray(value) ? value : {};
}

function textOf(value) {
  if (value === null || value === undefined) return "";
  return typeof value === "string" ? value : JSON.stringify(value);
}
