"""`swift-grpo-ext score --gold` on rows as published data sets have them: how many it reads, and how."""

import json

import pytest

from tests.rewards.offline.rows import lines

SIZES = {"image_sizes": [{"original": [640, 480], "resized": [640, 480]}]}
PIXELS = "gold_frame=pixel_original"
TEN = [{"answer": "net", "answer_confidence": "yes", "answer_id": n} for n in range(9)] + [
    {"answer": "netting", "answer_confidence": "maybe", "answer_id": 10}
]
REFCOCO = {"question_id": "1", "question": "...", "answer": ["bowl"], "iscrowd": 0, "file_name": "a.jpg"}
GUI_R1 = {"instruction": "Open it", "history": "None", "task_type": "high", "gt_input_text": "no input text"}
MATHVISTA = {"question": "How long?", "unit": None, "precision": None}
CONTROL = [
    {"action_type": "click", "x": 313, "y": 60},
    {"action_type": "long_press", "x": 3, "y": 4},
    {"action_type": "scroll", "direction": "down"},
    {"action_type": "input_text", "text": "rome"},
    {"action_type": "open_app", "app_name": "Zoho"},
    {"action_type": "navigate_back"},
    {"action_type": "wait"},
]

# data set, reward, column of the gold if the table names it, rows, rows that are read, what is printed
SHAPES = [
    ("RefCOCO of lmms-lab", f"ext_iou:gold_order=xywh,{PIXELS}", None,
     [{**REFCOCO, "bbox": [100.5, 50, 200, 100], "segmentation": [1, 2]}], 1, "[100.5, 50.0, 300.5, 150.0]"),
    ("RefCOCO of lmms-lab, order not told", f"ext_iou:{PIXELS}", None,
     [{**REFCOCO, "bbox": [100.5, 50, 200, 100], "segmentation": [1, 2]}], 0, "COCO annotation: gold_order=xywh"),
    ("RefCOCO of jxu124", f"ext_iou:{PIXELS}", None,
     [{"bbox": [100.5, 50, 300.5, 150], "ann_id": 3, "ref_id": 4, "raw_anns": "{}", "split": "val"}], 1,
     "[100.5, 50.0, 300.5, 150.0]"),
    ("COCO, an annotation", f"ext_iou:gold_order=xywh,{PIXELS}", None,
     [{"category_id": 18, "bbox": [473, 395, 38, 28], "area": 702.1, "iscrowd": 0}], 1, "[473.0, 395.0, 511.0, 423.0]"),
    ("COCO of detection-datasets", f"ext_iou:gold_order=xyxy,{PIXELS}", None,
     [{"width": 640, "objects": {"bbox_id": [7], "category": [17], "bbox": [[100, 50, 300, 150]], "area": [9]}}], 1,
     "[100.0, 50.0, 300.0, 150.0]"),
    ("COCO's class numbers", f"ext_detection_f1:gold_order=xyxy,{PIXELS}", None,
     [{"objects": {"bbox_id": [7], "category": [17], "bbox": [[100, 50, 300, 150]], "area": [9]}}], 0, "class number"),
    ("Visual Genome, objects", f"ext_detection_f1:{PIXELS}", None,
     [{"objects": [{"x": 100, "y": 50, "w": 200, "h": 100, "names": ["tree"], "object_id": 7, "synsets": ["a"]}]}], 1,
     "tree"),
    ("Visual Genome, regions", f"ext_iou:{PIXELS}", "region",
     [{"region": {"x": 100, "y": 50, "width": 200, "height": 100, "phrase": "a tree", "region_id": 1}}], 1,
     "[100.0, 50.0, 300.0, 150.0]"),
    ("objects of ms-swift", "ext_detection_f1", None,
     [{"objects": {"ref": ["cat", "dog"], "bbox": [[1, 2, 30, 40], [5, 6, 70, 80]]}},
      {"objects": {"ref": ["cat"], "bbox": [[1, 2, 30, 40], [5, 6, 70, 80]]}},
      {"objects": {"ref": ["cat"], "bbox": [[0.1, 0.2, 0.3, 0.4]], "bbox_type": "norm1"}}], 3, '"label": "dog"'),
    ("ScreenSpot", "ext_point_in_box:gold_frame=norm1", None,
     [{"file_name": "a.png", "bbox": [0.25, 0.25, 0.5, 0.5], "instruction": "open", "data_type": "icon"}], 1, "240.0, 180.0"),
    ("ScreenSpot, frame not told", "ext_point_in_box", None,
     [{"file_name": "a.png", "bbox": [0.25, 0.25, 0.5, 0.5], "instruction": "open"}], 0, "gold_frame=norm1"),
    ("AndroidControl", f"ext_click:{PIXELS}", None, [{"solution": one} for one in CONTROL], 7, "313.0, 60.0"),
    ("AndroidControl as text", f"ext_click:{PIXELS}", None, [{"solution": json.dumps(one)} for one in CONTROL], 7, "313.0"),
    ("Mind2Web", "ext_click", None,
     [{"operation": {"original_op": "CLICK", "value": "", "op": "CLICK"}, "action_uid": "a"}], 0, "no place"),
    ("Mind2Web with its box", "ext_click", None,
     [{"operation": {"original_op": "TYPE", "value": "rome", "op": "TYPE"}, "bbox": [283, 220, 376, 237]}], 1, "rome"),
    ("GUI-R1", "ext_click:gold_frame=norm1", None,
     [{**GUI_R1, "gt_action": "click", "gt_bbox": [0.25, 0.25, 0.5, 0.5]},
      {**GUI_R1, "gt_action": "scroll", "gt_bbox": [-100, -100], "gt_input_text": "UP"},
      {**GUI_R1, "gt_action": "type", "gt_bbox": [-100, -100], "gt_input_text": "rome"},
      {**GUI_R1, "gt_action": "press_back", "gt_bbox": [-100, -100]}], 4, "240.0, 180.0"),
    ("UI-R1", f"ext_click:{PIXELS}", None, [{"gt_action": "click", "gt_bbox": [10, 20, 110, 220]}], 1, "60.0, 120.0"),
    ("MMMU", "ext_choice", None,
     [{"options": "['$63,020', '$58,410', '$71,320', '$77,490']", "answer": "B", "question_type": "multiple-choice"}], 1,
     "B"),
    ("MMMU, open", "ext_anls", None, [{"options": "[]", "answer": "['$6', '6 dollars']", "question_type": "open"}], 1, "$6"),
    ("MMMU, open, as a choice", "ext_choice", None, [{"options": "[]", "answer": "['$6', '6 dollars']"}], 0, "no option"),
    ("ChartQA", "ext_numeric", "label", [{"query": "How many?", "label": ["14"], "human_or_machine": 0}], 1, "14"),
    ("ChartQA, words", "ext_numeric", "label", [{"query": "Who?", "label": ["Inspired"]}], 0, "is no number"),
    ("MathVista, choice", "ext_choice", None,
     [{**MATHVISTA, "choices": ["3/11", "8/11", "6/11"], "answer": "8/11", "question_type": "multi_choice"}], 1, "B"),
    ("MathVista, free", "ext_numeric", None, [{**MATHVISTA, "choices": None, "answer": "1.2"}], 1, "1.2"),
    ("MathVista, a list", "ext_numeric", None, [{**MATHVISTA, "choices": None, "answer": "[0, 2, 7]"}], 0, "is no number"),
    ("VQAv2", "ext_anls", "answers", [{"multiple_choice_answer": "net", "answers": TEN}], 1, "net"),
    ("DocVQA", "ext_anls", "answers", [{"questionId": "9", "answers": ["1/8/93", "January 8"]}], 1, "1/8/93"),
    ("geometry3k", "ext_math", None,
     [{"problem": "Find x.", "answer": answer}
      for answer in ("3", "2 \\sqrt { 221 }", "\\frac { 20 } { 3 }", "5 \\sqrt { 3 } - 7", "60 \\%", "9 \\pi", "3 x + 2")], 7,
     "$2 \\sqrt { 221 }$"),
    ("CLEVR, counts", "ext_count", None, [{"answer": "3"}, {"solution": "<answer> 3 </answer>"}], 2, "3"),
    ("CLEVR, yes and no", "ext_yes_no", None, [{"answer": "yes"}, {"answer": "no"}], 2, "yes"),
    ("CLEVR, others' rows", "ext_count", None, [{"answer": "yes"}, {"answer": "rubber"}], 0, "is no count"),
    ("ActivityNet", "ext_temporal_iou", None,
     [{"duration": 82.7, "timestamps": [[0.83, 19.86], [17.37, 60.81]], "sentences": ["a", "b"]},
      {"duration": 82.7, "timestamp": [0.83, 19.86]}], 2, "[[0.83, 19.86], [17.37, 60.81]]"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("reward", "column", "rows", "read", "printed"),
    [one[1:] for one in SHAPES],
    ids=[one[0] for one in SHAPES],
)
def test_score_gold_says_how_many_it_read_and_how(reward, column, rows, read, printed, run, tmp_path, capsys):
    name = reward.partition(":")[0]
    table = json.dumps({"rewards": {name: {"gold": column}}}) if column else ""
    data = lines(tmp_path / "data.jsonl", [{**row, **SIZES} for row in rows])
    well, records = run(data, reward, gold=True, table=table)
    out = capsys.readouterr().out
    assert f"{name}: {read} of {len(rows)} gold answers get the maximum" in out
    assert printed in out
    assert well is (read == len(rows))
    assert [record["score"] for record in records] == [1.0 if read else None] * len(rows)
