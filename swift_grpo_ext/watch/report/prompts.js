// All logged prompts of a run: those that are always wrong, often because of broken golds, and always right.
const NEARLY = 0.1; // share of the reward's range, from either end, that counts as always
const PROMPTS_SHOWN = 5; // of each kind

function drawPrompts() {
  byId("prompts").replaceChildren(...data.runs.map(promptsOf).filter(Boolean));
}

function promptsOf(run, number) {
  const groups = data.groups.filter(group => group.run === number && Number.isFinite(group.mean));
  const sums = groups.flatMap(group => group.samples.map(sample => Object.values(sample.rewards).reduce((a, b) => a + (b || 0), 0)));
  if (run.means.length === 0 || run.logged < 2 * run.size * run.means.length) return null; // most were sampled only once
  const low = [...run.means, ...sums].reduce((a, b) => Math.min(a, b), Infinity);
  const high = [...run.means, ...sums].reduce((a, b) => Math.max(a, b), -Infinity);
  const holds = { wrong: mean => mean <= low + NEARLY * (high - low), right: mean => mean >= high - NEARLY * (high - low) };
  const lists = Object.entries(holds).flatMap(([kind, is]) => {
    const newest = new Map(groups.filter(group => is(group.mean)).map(group => [group.asked, group]));
    const look = kind === "wrong" ? ". Look at their golds:" : "";
    const words = `${run.means.filter(is).length} of ${counted(run.means.length, "prompt")} are ${kind} in nine of ten completions or more${look}`;
    const cards = [...newest.values()].slice(-PROMPTS_SHOWN).map(group => card({ group, rows: distinct(group.samples) }));
    return [h("p.soft", {}, words), h("section.cards", {}, ...cards)];
  });
  const ends = run.means.filter(mean => mean === low || mean === high).length;
  const name = data.runs.length > 1 ? `${run.name}: ` : "";
  return h("details", {}, h("summary", {}, `${name}${ends} of ${counted(run.means.length, "prompt")} never had a group with different rewards`), ...lists);
}
