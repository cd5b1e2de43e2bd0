// Ask the server of --follow for a newer page, and take over what changed; filters stay as they are.
async function refresh(state) {
  const answer = await fetch("/", { cache: "no-store", headers: state.tag ? { "If-None-Match": state.tag } : {} });
  if (answer.status === 304) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  state.tag = answer.headers.get("ETag");
  if (!page.getElementById("data")) return;
  byId("summary").replaceChildren(...document.importNode(page.getElementById("summary"), true).childNodes);
  byId("gallery").dataset.total = page.getElementById("gallery").dataset.total;
  data = readData(page);
  draw();
}

function keepFresh(seconds) {
  const state = { tag: null };
  const again = async () => {
    try {
      await refresh(state);
      byId("live").textContent = "live";
      byId("live").classList.remove("off");
    } catch {
      byId("live").textContent = "ended";
      byId("live").classList.add("off");
    }
    setTimeout(again, 1000 * seconds);
  };
  again();
}

function draw() {
  drawCurves();
  fillFilters();
  const before = drawn;
  choose();
  while (drawn < Math.min(before, chosen.length)) showMore();
}

startGallery();
draw();
if (Number(document.body.dataset.follow)) keepFresh(Number(document.body.dataset.follow));
