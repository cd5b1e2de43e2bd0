"""Videos of rows: read with PyAV, or refused by name."""

import av
import pytest

import swift_grpo_ext
from swift_grpo_ext.errors import DatasetRowError
from tests.models import contract
from tests.models.contract_cases import turning_video


@pytest.fixture(scope="module")
def qwen(tiny_qwen):
    swift_grpo_ext.register()
    return contract.load(tiny_qwen, model_type="qwen2_5_vl", template_type="qwen2_5_vl").template


@pytest.fixture(scope="module")
def ovis(tiny_ovis):
    swift_grpo_ext.register()
    return contract.load(tiny_ovis).template


@pytest.fixture(params=["qwen", "ovis"])
def template(request):
    return request.getfixturevalue(request.param)


def encoded(template, video, **columns):
    """What the template makes of a row with one video."""
    template.set_mode("train")
    row = {"messages": [{"role": "user", "content": "<video>What happens?"}], "videos": [video], **columns}
    return template.encode(row)


@pytest.fixture
def turning(tmp_path):
    """Path of a video of 20 frames at 8 a second."""
    return str(turning_video(tmp_path / "turning.mp4", frames=20))


@pytest.fixture
def own_reader(monkeypatch):
    """qwen_vl_utils takes decord first, where it is installed."""
    monkeypatch.setattr("qwen_vl_utils.vision_process.get_video_reader_backend", lambda: "torchvision")


@pytest.mark.usefixtures("own_reader")
def test_a_video_file_is_read_without_torchvision(qwen, ovis, turning):
    # 20 frames at 8 a second are 2.5 s, of which 2 a second are 5, and even
    assert encoded(qwen, turning)["video_grid_thw"][0, 0] * 2 == 4
    assert len(encoded(ovis, turning)["pixel_values"]) % 12 == 0  # frames, each of as many tiles


@pytest.mark.parametrize("video", ["no.mp4", "text.mp4", "drawing.svg", ["no.png", "no.png"], []], ids=str)
def test_a_video_that_cannot_be_read_is_refused_by_name(template, video, tmp_path):
    (tmp_path / "text.mp4").write_text("no video")
    (tmp_path / "drawing.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    paths = [str(tmp_path / name) for name in video] if isinstance(video, list) else str(tmp_path / video)
    with pytest.raises(DatasetRowError, match=r"no\.(mp4|png)|text\.mp4|drawing\.svg|frames"):
        encoded(template, paths)


@pytest.mark.parametrize("share", [0.02, 0.5, 0.9])
def test_a_video_that_is_cut_off_is_refused_by_name(template, share, turning):
    with open(turning, "r+b") as file:
        file.truncate(int(len(file.read()) * share))
    with pytest.raises(DatasetRowError, match=r"turning\.mp4"):
        encoded(template, turning)


@pytest.mark.usefixtures("own_reader")
@pytest.mark.parametrize("kind", ["ExternalError", "EOFError", "InvalidDataError"])
def test_whatever_ffmpeg_says_names_the_video(template, kind, turning, monkeypatch):
    def refuse(source):
        raise getattr(av.error, kind)(1, "of no use", source)

    monkeypatch.setattr(av, "open", refuse)
    with pytest.raises(DatasetRowError, match=r"of no use.*\[.*turning\.mp4\]"):
        encoded(template, turning)


@pytest.mark.parametrize("video", [{"path": "a.mp4"}, b"bytes", 7], ids=["dict", "bytes", "number"])
def test_a_video_in_a_form_that_nobody_reads_is_refused(template, video):
    with pytest.raises(DatasetRowError, match=r"video is a (dict|bytes|int).*give a path, a URL"):
        encoded(template, video)


@pytest.mark.parametrize("options", [{"fps": 1, "nframes": 4}, {"video_start": "3"}], ids=str)
def test_options_that_make_no_sense_are_refused(qwen, options, turning):
    with pytest.raises(DatasetRowError, match=r"turning\.mp4"):
        encoded(qwen, turning, chat_template_kwargs=options)


@pytest.mark.usefixtures("own_reader")
def test_a_fault_of_ours_in_reading_is_no_broken_row(template, turning, monkeypatch):
    monkeypatch.setattr("swift_grpo_ext.models.video.find_file", lambda name: name.no_such_attribute)
    with pytest.raises(AttributeError):
        encoded(template, turning)
