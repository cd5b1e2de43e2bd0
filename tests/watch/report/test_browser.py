"""The page in a real browser: what a person sees, filters, hovers, and what stays out."""

import json
import time

import pytest
from PIL import Image

from swift_grpo_ext.watch.held_out import Evaluation, append
from swift_grpo_ext.watch.journal import Journal
from swift_grpo_ext.watch.report import write_report
from tests.watch.report.chromium import Browser, find_browser
from tests.watch.report.made_up_run import HOSTILE, table, write_run

CARDS = "document.querySelectorAll('.card').length"
STEPS = "[...document.querySelectorAll('.card header b')].map(node => node.textContent)"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    assert find_browser(), "no browser here: python tools/browser.py installs one"
    browser = Browser(find_browser(), tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture
def screenshots(tmp_path, pytestconfig):
    """Folder that the screenshots of these tests are kept in: output/screenshots."""
    return pytestconfig.rootpath / "output/screenshots"


def rising(count):
    return [step / count for step in range(count)]


@pytest.fixture
def boxes(tmp_path):
    """A run on a picture of 200 x 100 pixels, with gold and predicted boxes and points."""
    Image.new("RGB", (200, 100), "#335577").save(tmp_path / "picture.png")
    regions = [
        {
            "image": 0,
            "gold": [{"at": [0.25, 0.2, 0.75, 0.6], "label": "cat"}],
            "predicted": [{"at": [0.3, 0.25, 0.8, 0.7], "label": "cat"}, {"at": [0.5, 0.5]}],
        }
    ] * 4
    images = [str(tmp_path / "picture.png")]
    tables = [table(step, ["[1, 2]", "b", "c", ""], images) | {"regions": regions} for step in range(1, 13)]
    return write_run(tmp_path / "boxes", rising(12), completions=tables)


def test_what_a_person_sees(browser, boxes, screenshots):
    report = write_report(boxes)
    for dark in (False, True):
        page = browser.open(report.html.as_uri(), dark=dark)
        assert page.text(".verdict strong").startswith("It learns: the reward rose")
        assert page.run("document.querySelectorAll('.curve path').length") > 8
        assert page.run("document.querySelectorAll('.card img').length") == 12
        assert page.text("#count") == "12 groups, 48 completions"
        assert "(empty)" in page.text("#gallery")
        assert "not scored" in page.text("#gallery")
        assert page.complaints() == []
        back = page.run("getComputedStyle(document.body).backgroundColor")
        assert back == ("rgb(13, 18, 27)" if dark else "rgb(246, 248, 251)")
        shot = page.screenshot(screenshots / f"report_{'dark' if dark else 'light'}.png")
        with Image.open(shot) as image:
            assert image.width == 1280
            assert len(image.convert("RGB").getcolors(1 << 24)) > 50, "the page is not blank"


def test_equal_completions_are_one_row_and_the_best_comes_first(browser, tmp_path):
    own = {"question": ["Which digit is this?"] * 4, "read": [{"ext_choice": "7"}] * 4}
    run = write_run(tmp_path / "run", rising(12), completions=[table(1, ["7", "7", "1", "7"]) | own])
    page = browser.open(write_report(run).html.as_uri())
    rows = (
        "[...document.querySelectorAll('.card tbody tr')].map(row => row.innerText.split(/\\s+/).join(' '))"
    )
    assert page.run(rows) == [
        "7 ext_choice: read 7 2 1 not scored +1.00",
        "1 ext_choice: read 7 1 0 not scored −1.00",
        "7 ext_choice: read 7 1 0 not scored −1.00",
    ]
    assert page.text(".card > p") == "Which digit is this?"


def test_a_reward_of_another_task_has_no_column_and_a_phone_shows_all_columns(browser, tmp_path):
    Image.new("RGB", (56, 56), "#335577").save(tmp_path / "picture.png")
    images = [str(tmp_path / "picture.png")]
    one = {**table(1, ["7", "1"], images), "near_count": [None, None]}
    other = {**table(2, ["3", "4"], images), "ext_choice": [None, None], "near_count": [1.0, 0.0]}
    run = write_run(tmp_path / "run", rising(12), completions=[one, other])
    page = browser.open(write_report(run).html.as_uri(), width=390)
    heads = "[...document.querySelectorAll('.card thead')].map(row => row.innerText.split(/\\s+/).join(' '))"
    assert page.run(heads) == [
        "completion times ext_choice ext_format advantage",
        "completion times ext_format near_count advantage",
    ]
    hidden = (
        "[...document.querySelectorAll('.card .scroll')].filter(part => part.scrollWidth > part.clientWidth)"
    )
    assert page.run(f"{hidden}.length") == 0, "the advantage is in sight"


def test_boxes_and_points_lie_where_they_belong(browser, boxes, screenshots):
    page = browser.open(write_report(boxes).html.as_uri())
    page.wait("document.querySelector('.card img').complete")
    places = """(() => {
      const image = document.querySelector('.card img').getBoundingClientRect();
      const of = node => { const box = node.getBoundingClientRect(); return [
        (box.left - image.left) / image.width, (box.top - image.top) / image.height,
        (box.right - image.left) / image.width, (box.bottom - image.top) / image.height]; };
      const first = document.querySelector('.card');
      return {gold: of(first.querySelector('.region.gold')), predicted: of(first.querySelector('.region.predicted')),
              point: of(first.querySelector('.region.point'))};
    })()"""
    found = page.run(places)
    assert found["gold"] == pytest.approx([0.25, 0.2, 0.75, 0.6], abs=0.01)
    assert found["predicted"] == pytest.approx([0.3, 0.25, 0.8, 0.7], abs=0.01)
    left, top, right, bottom = found["point"]
    assert ((left + right) / 2, (top + bottom) / 2) == pytest.approx((0.5, 0.5), abs=0.01)
    assert page.text(".region.gold span") == "cat"
    page.run("document.querySelector('tbody tr').dispatchEvent(new MouseEvent('mouseenter'))")
    assert page.run("document.querySelectorAll('.card .region.chosen').length") == 2
    page.run("document.querySelector('.card').scrollIntoView()")
    page.screenshot(screenshots / "boxes.png", whole=False)
    page.run("document.querySelector('#drawn').click()")
    assert page.run("getComputedStyle(document.querySelector('.region')).display") == "none"


def test_boxes_outside_of_the_picture_are_not_drawn_into_it(browser, tmp_path):
    Image.new("RGB", (200, 100), "#335577").save(tmp_path / "picture.png")
    places = [[-2, -3, -1, -1], [0.5, 0.6, 0.25, 0.2], [0.9, 0.5, 7, 0.7]]  # far off, corners swapped, partly
    regions = {"image": 0, "gold": [], "predicted": [{"at": at} for at in places]}
    columns = table(1, ["a"] * 4, [str(tmp_path / "picture.png")]) | {"regions": [regions] * 4}
    page = browser.open(
        write_report(write_run(tmp_path / "run", rising(12), completions=[columns])).html.as_uri()
    )
    page.wait("document.querySelector('.card img').complete")
    drawn = page.run(
        """(() => {
      const image = document.querySelector('.card img').getBoundingClientRect();
      return [...document.querySelectorAll('.region')].slice(0, 3).map(node => node.getBoundingClientRect()).map(box => [
        (box.left - image.left) / image.width, (box.top - image.top) / image.height,
        (box.right - image.left) / image.width, (box.bottom - image.top) / image.height]);
    })()"""
    )
    assert drawn[0][2] < 0
    assert drawn[0][3] < 0
    assert drawn[1] == pytest.approx([0.25, 0.2, 0.5, 0.6], abs=0.01)
    assert drawn[2][:2] == pytest.approx([0.9, 0.5], abs=0.01)


def test_a_narrow_window_and_what_is_long(browser, tmp_path, screenshots):
    """Long names, long words, a high picture: nothing makes the page wider, and text stays readable."""
    Image.new("RGB", (100, 900), "#335577").save(tmp_path / "high.png")
    word = "model.language_model.layers.0." * 12
    columns = table(1, ["short text", word, "z", ""], [str(tmp_path / "high.png")])
    columns |= {f"reward_with_a_long_name_{i}": [0.5] * 4 for i in range(4)}
    run = write_run(tmp_path / word[:200], rising(12), completions=[columns])
    Journal(run, rank=0).add("stall", step=1, text=word)
    page = browser.open(write_report(run).html.as_uri(), width=390)
    page.wait("document.querySelector('.card img').complete")
    assert page.run("document.documentElement.scrollWidth") == 390
    assert page.run("document.querySelector('.card img').getBoundingClientRect().height") <= 330
    assert page.run("document.querySelector('.card td.text').getBoundingClientRect().width") >= 170
    page.screenshot(screenshots / "report_narrow.png")


def test_filters_by_step_reward_and_text(browser, boxes):
    page = browser.open(write_report(boxes).html.as_uri())
    page.type("#from", "5")
    page.type("#to", "6")
    assert page.run(STEPS) == ["Step 5", "Step 6"]
    page.type("#least", "1")
    assert page.text("#count") == "2 groups, 4 completions of 48 logged"
    page.type("#least", "")
    page.type("#most", "0.5")
    assert (
        page.run("[...document.querySelectorAll('.card td.text')].map(cell => cell.textContent)")
        == ["c", "(empty)"] * 2
    )
    page.type("#text", "C")
    assert page.text("#count") == "2 groups, 2 completions of 48 logged"
    page.type("#text", "nothing says this")
    assert page.run(CARDS) == 0
    for field in ("#text", "#most", "#from", "#to"):
        page.type(field, "")
    page.type("#order", "last")
    assert page.run(STEPS)[0] == "Step 12"


def test_a_figure_under_the_mouse_is_told(browser, boxes):
    page = browser.open(write_report(boxes).html.as_uri())
    place = page.run(
        "(() => {const b = document.querySelector('.curve svg').getBoundingClientRect(); return [b.right - 3, b.top + 60]})()"
    )
    page.call("Input.dispatchMouseEvent", type="mouseMoved", x=place[0], y=place[1])
    page.wait("document.querySelector('.tip')")
    assert page.text(".tip").startswith("step 12\n")
    assert "0.9167" in page.text(".tip")


def test_under_the_mouse_a_run_that_had_ended_has_no_value(browser, tmp_path):
    folders = [write_run(tmp_path / f"{steps} steps", rising(steps)) for steps in (12, 40)]
    page = browser.open(write_report(folders, tmp_path / "both").html.as_uri())
    page.run("document.querySelector('.curve').scrollIntoView()")
    place = page.run(
        "(() => {const b = document.querySelector('.curve svg').getBoundingClientRect(); return [b.right - 9, b.top + 60]})()"
    )
    page.call("Input.dispatchMouseEvent", type="mouseMoved", x=place[0], y=place[1])
    page.wait("document.querySelector('.tip')")
    short, long = (f"{tmp_path.name}/{name}" for name in ("12 steps", "40 steps"))
    assert page.text(".tip").split("\n") == ["step 40", f"{short} –", f"{long} 0.975"]


def test_hostile_text_is_text(browser, tmp_path):
    hostile = HOSTILE + "</script><script>window.hit = 1</script><img src=x onerror='window.hit = 1'>"
    tables = [
        table(1, [hostile] * 4, images=[hostile], prompt=hostile)
        | {"solution": [hostile] * 4, hostile: [1.0] * 4}
    ]
    report = write_report(write_run(tmp_path / "run", rising(12), completions=tables), title=hostile)
    page = browser.open(report.html.as_uri())
    page.run("document.querySelector('.card summary').click()")
    page.wait("document.querySelector('pre')")
    assert page.run("window.hit") is None
    assert page.run("[...document.images].filter(image => !image.src.startsWith('data:')).length") == 0
    assert page.run("document.querySelector('td.text div').textContent") == hostile
    assert page.run("document.querySelector('pre').textContent") == hostile
    assert page.complaints() == []


def test_five_thousand_completions_stay_fluid(browser, tmp_path, screenshots, record_property):
    Image.new("RGB", (640, 480), "#884422").save(tmp_path / "photo.png")
    texts = [
        [f"{step}.{i}: " + "lorem ipsum dolor sit amet " * 12 for i in range(8)] for step in range(1, 626)
    ]
    tables = [table(step, texts[step - 1], [str(tmp_path / "photo.png")]) for step in range(1, 626)]
    report = write_report(write_run(tmp_path / "run", rising(625), completions=tables))
    size = report.html.stat().st_size
    started = time.perf_counter()
    page = browser.open(report.html.as_uri())
    page.wait(CARDS)
    opened = time.perf_counter() - started
    assert page.text("#count") == "1,250 groups, 5,000 completions"
    before = page.run(CARDS)
    assert before <= 96, "cards come as they are scrolled to"
    filtering = min(
        page.run(
            f"(() => {{const start = performance.now(); const f = document.querySelector('#text'); f.value = '{text}';"
            "f.dispatchEvent(new Event('input', {bubbles: true})); document.body.offsetHeight; return performance.now() - start})()"
        )
        for text in ("7.3", "8.3", "9.3")
    )
    page.type("#text", "")
    frames = page.run(
        """(async () => {
          const gaps = []; let last = performance.now();
          for (let i = 0; i < 90; i++) {
            window.scrollBy(0, 400);
            await new Promise(requestAnimationFrame);
            gaps.push(performance.now() - last); last = performance.now();
          }
          return gaps.sort((a, b) => a - b);
        })()"""
    )
    assert page.run(CARDS) > before, "more came while scrolling"
    figures = {
        "bytes": size,
        "opened_s": round(opened, 2),
        "filter_ms": round(filtering, 1),
        "frame_median_ms": round(frames[45], 1),
        "frame_worst_ms": round(frames[-1], 1),
    }
    print(json.dumps(figures))
    page.screenshot(screenshots / "five_thousand.png", whole=False)
    assert size < 8e6
    # Ten times what a quiet machine of two cores needs.
    assert opened < 5
    assert filtering < 150
    assert frames[45] < 170


def test_runs_side_by_side(browser, tmp_path, screenshots):
    folders = []
    for name, rewards in (("low rate", rising(40)), ("high rate", [1 - each for each in rising(40)])):
        folders.append(write_run(tmp_path / name, rewards, completions=[table(1, [name] * 4)]))
    page = browser.open(write_report(folders, tmp_path / "both").html.as_uri())
    names = [f"{tmp_path.name}/low rate", f"{tmp_path.name}/high rate"]
    assert page.run("[...document.querySelectorAll('.verdict b')].map(node => node.textContent)") == names
    assert page.text(".curve .legend").split("\n") == names
    assert page.run(CARDS) == 2
    page.type("#run", "1")
    assert page.run(CARDS) == 1
    assert "high rate" in page.text(".card")
    page.screenshot(screenshots / "two_runs.png")


def test_a_run_that_goes_on_after_a_break(browser, tmp_path, screenshots):
    """Held-out curve first, flat curves folded away, the bill as bars."""
    folder = write_run(tmp_path / "run", rising(40), **{"watch/engine_ratio": 1.0003})
    seconds = {"rollout": 120.0, "forward": 40.0, "backward": 36.0, "log": 0.1}
    Journal(folder, rank=0).add("bill", step=40, steps=40, seconds=seconds, work={})
    again = (folder / "logging.jsonl").read_text().splitlines(keepends=True)[24:]
    with open(folder / "logging.jsonl", "a") as log:
        log.write("".join(again))
    for number in range(1, 5):
        right = tuple(float(row < 8 * number) for row in range(40))
        append(folder, Evaluation(10 * number, {"reward": right}, rows="40 rows"))
    page = browser.open(write_report(folder).html.as_uri())
    assert page.text("#rewards h3") == "held-out reward: mean and 95 % interval"
    assert page.text("#folded summary").split(" ")[0] == str(
        page.run("document.querySelectorAll('#flat .curve').length")
    )
    assert "gradient norm" in page.text("#folded summary")
    assert page.text(".bar").split("\n")[0] == "rollout"
    assert page.text("#compared summary").startswith("Rollout engine and trainer agree: mean of exp|d|")
    assert page.run("document.querySelector('#compared').open") is False
    tiles = page.run("[...document.querySelectorAll('.figures .value')].map(node => node.textContent)")
    assert tiles[0] == "40 of 40"
    assert "→" in tiles[1]
    widths = "[...document.querySelectorAll('.bar i')].map(node => node.getBoundingClientRect().width)"
    longest, *others = page.run(widths)
    assert longest > max(others) > 10
    assert page.complaints() == []
    page.screenshot(screenshots / "report_resumed.png")


def test_prompts_that_are_always_wrong_are_shown_with_their_golds(browser, tmp_path):
    """Of eight prompts that are asked twice six are always wrong, one always right, and one half of the time."""
    tables = []
    for step in range(1, 17):
        digit = step % 8
        right = [float(digit == 0 or (digit == 1 and number % 2)) for number in range(4)]
        made = table(step, ["a", "b", "c", "d"]) | {"gold": [f"gold {digit}"] * 4, "ext_choice": right}
        made["advantages"] = [value - sum(right) / 4 for value in right]
        tables.append(made)
    report = write_report(write_run(tmp_path / "run", rising(16), completions=tables), completions=40)
    page = browser.open(report.html.as_uri())
    assert page.complaints() == []
    assert page.text("#prompts summary") == "7 of 8 prompts never had a group with different rewards"
    wrong, right = (
        page.run(f"document.querySelectorAll('#prompts p')[{kind}].textContent") for kind in (0, 1)
    )
    assert wrong == "6 of 8 prompts are wrong in nine of ten completions or more. Look at their golds:"
    assert right == "1 of 8 prompts are right in nine of ten completions or more"
    cards = page.run("[...document.querySelectorAll('#prompts .card header')].map(node => node.textContent)")
    golds = {card[card.index("gold: ") :] for card in cards}
    assert golds < {f"gold: gold {digit}" for digit in (0, 2, 3, 4, 5, 6, 7)}, (
        "ten of sixteen steps are shown"
    )
    assert len(golds) > 3


def test_a_run_that_asked_each_prompt_once_has_no_list_of_them(browser, tmp_path):
    tables = [table(step, ["a", "b", "c", "d"]) | {"gold": [f"gold {step}"] * 4} for step in range(1, 13)]
    page = browser.open(
        write_report(write_run(tmp_path / "run", rising(12), completions=tables)).html.as_uri()
    )
    assert page.complaints() == []
    assert page.run("document.querySelectorAll('#prompts details').length") == 0
