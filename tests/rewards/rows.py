"""Rows with a gold answer for each reward of the catalogue, in the forms that datasets use."""

SIZES = [{"original": [640, 480], "resized": [644, 476]}]
BOX = [10, 20, 110, 220]
TWO = [{"bbox_2d": BOX, "label": "cat"}, {"bbox_2d": [300, 200, 400, 260], "label": "Dog"}]
OBJECTS = {"ref": ["cat", "dog"], "bbox": [BOX, [300, 200, 400, 260]], "bbox_type": "real"}
BOX_ROWS = [
    {"solution": BOX},
    {"solution": "<answer>[10, 20, 110, 220]</answer>"},
    {"solution": "(10,20),(110,220)"},
    {"solution": TWO},
    {"bbox": [BOX]},
    {"objects": OBJECTS, "image_sizes": SIZES},
    {"solution": [3, 3, 4, 4]},
]
TEXT_ROWS = [
    {"solution": "The quick brown fox"},
    {"answer": "第一行文字\n第二行"},
    {"solution": "naïve café 42"},
]
TABLE = "<table><tr><th colspan=2>Year</th></tr><tr><td>2020</td><td>1,234</td></tr></table>"

ROWS = {
    "ext_iou": BOX_ROWS,
    "ext_giou": BOX_ROWS,
    "ext_detection_f1": BOX_ROWS,
    "ext_point_in_box": BOX_ROWS,
    "ext_click": [
        {"solution": {"action": "click", "coordinate": [100, 200]}, "image_sizes": SIZES},
        {"solution": {"action": "click", "bbox": BOX}},
        {"solution": "click(x=100, y=200)", "image_sizes": SIZES},
        {"solution": {"action": "type", "text": "hello world"}},
        {"solution": BOX},
        {"action": '{"name": "computer_use", "arguments": {"action": "scroll", "direction": "down"}}'},
    ],
    "ext_temporal_iou": [
        {"solution": [12.5, 30]},
        {"solution": "from 12.5s to 30s"},
        {"timestamps": [[1, 2], [3, 4.5]]},
        {"solution": "00:12 - 01:05.5"},
    ],
    "ext_count": [{"solution": 3}, {"solution": "three"}, {"count": 0}, {"answer": "12"}, {"solution": 3.0}],
    "ext_count_shaped": [{"solution": 3}, {"solution": "<answer>7</answer>"}],
    "ext_choice": [
        {"solution": "B"},
        {"solution": "a dog", "options": ["a cat", "a dog"]},
        {"answer": ["A", "C"]},
    ],
    "ext_yes_no": [{"solution": "yes"}, {"solution": "No."}, {"answer": True}, {"solution": "是"}],
    "ext_numeric": [
        {"solution": "1,234.5"},
        {"solution": 12},
        {"answer": "12%"},
        {"solution": "5 km"},
        {"solution": -0.5},
    ],
    "ext_math": [
        {"solution": "\\frac{1}{2}"},
        {"solution": "$x^2+1$"},
        {"answer": "42"},
        {"solution": "\\boxed{3}"},
    ],
    "ext_ocr": TEXT_ROWS,
    "ext_wer": TEXT_ROWS,
    "ext_anls": [{"solution": ["first", "1st"]}, {"solution": "only"}],
    "ext_table": [{"solution": TABLE}, {"table": "| a | b |\n|---|---|\n| 1 | 2 |"}],
    "ext_json_schema": [
        {"solution": '{"total": 12.5, "items": [{"name": "tea"}]}'},
        {"solution": {"a": [1, 2, {"b": None}]}, "schema": {"type": "object", "required": ["a"]}},
    ],
    "ext_text_f1": TEXT_ROWS,
    "ext_rouge": TEXT_ROWS,
    "ext_answer": [
        {"solution": "B", "options": ["a cat", "a dog"]},
        {"solution": "1,200"},
        {"solution": "yes"},
        {"solution": "\\frac{1}{2}"},
        {"answers": ["the Eiffel Tower", "tour Eiffel"]},
    ],
    "ext_tool_call": [
        {"solution": {"name": "weather", "arguments": {"city": "Rome", "days": 3}}},
        {"tool_calls": [{"name": "a", "arguments": {}}, {"name": "b", "arguments": {"x": [1, 2]}}]},
    ],
    "ext_format": [{}],
    "ext_repetition": [{}],
    "ext_judge": [
        {"messages": [{"role": "user", "content": "<image>What is it?"}], "solution": "a cat"},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "图中是什么？"}]}], "answer": 3},
    ],
}
