"""What an engine that is at fault makes of its requests; for the plugins of transformers' engine and of vLLM."""

from copy import deepcopy

from PIL import Image

PICTURES = {
    "channels": lambda picture: Image.merge("RGB", picture.split()[::-1]),
    "filter": lambda picture: picture.resize(
        (112, 84), Image.Resampling.NEAREST
    ),  # as large as the trainer's
    "pixels": lambda picture: picture.resize((140, 140)),  # of a server with other limits
}


def turn_of(request):
    """The turn that it asks for, from 1."""
    return 1 + sum(turn["role"] == "assistant" for turn in request.messages)


def faulty_request(request, fault):
    """A copy of a request with a fault, or without one."""
    request = deepcopy(request)
    if fault == "system":
        in_verse(request)
    elif fault in PICTURES:
        request.images = [PICTURES[fault](Image.open(path).convert("RGB")) for path in request.images]
    elif fault == "video times":
        request.chat_template_kwargs = {"raw_fps": 8.0}
    elif any(turn["role"] == "assistant" for turn in request.messages):
        in_later_turns(request, fault)
    return request


def newest_changed(request, change):
    """Let the newest image be another one, in memory."""
    *before, newest = request.images
    newest = newest if isinstance(newest, Image.Image) else Image.open(newest)
    request.images = [*before, change(newest.convert("RGB"))]


def with_mixed_ids(response, placeholder):
    """What an engine answers that went on with ids in which the first image of several is one token."""
    ids = response.prompt_token_ids
    first = ids.index(placeholder)
    last = next(place for place in range(first, len(ids)) if ids[place] != placeholder)
    if placeholder in ids[last:]:
        response.prompt_token_ids = [*ids[: first + 1], *ids[last:]]


def in_verse(request):
    messages = request["messages"] if isinstance(request, dict) else request.messages  # a server's are dicts
    kept = [turn for turn in messages if turn["role"] != "system"]
    messages[:] = [{"role": "system", "content": "Answer in verse."}, *kept]


def in_later_turns(request, fault):
    """What a server makes of a request whose history it has."""
    *_, last = request.messages
    if fault == "another question":
        last["content"] = last["content"].replace("this", "that")
    elif fault == "image lost":
        last["content"] = last["content"].replace("<image>", "")
        request.images = request.images[:1]
        for turn in request.messages[1:-1]:
            if turn["role"] == "user":
                turn["content"] = turn["content"].replace("<image>", "")
    elif fault == "another crop":
        newest_changed(request, lambda crop: crop.transpose(Image.Transpose.FLIP_TOP_BOTTOM))
    elif fault == "BGR crop":
        newest_changed(request, PICTURES["channels"])
    elif fault == "image added":
        last["content"] = f"<image>{last['content']}"
        request.images = [*request.images, request.images[-1]]
