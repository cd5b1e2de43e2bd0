import pytest
from hypothesis import given
from hypothesis import strategies as st

from swift_grpo_ext.rewards.contract import Unread
from swift_grpo_ext.rewards.numeric import numeric
from swift_grpo_ext.rewards.values.number import read


def quantities(text):
    try:
        return [read(text)]
    except Unread:
        return []


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("42", [42]),
        ("-3.5", [-3.5]),
        ("−3.5", [-3.5]),
        (".5", [0.5]),
        ("1,234", [1234]),
        ("1,234,567.89", [1234567.89]),
        (r"1\,234", [1234]),
        ("1{,}234{,}567", [1234567]),
        ("$1,200", [1200]),
        ("$ 5", [5]),
        ("-$5", [-5]),
        ("€5 million", [5e6]),
        ("5M", [5e6]),
        ("5 k", [5000]),
        ("2.5bn", [2.5e9]),
        ("3万", [30000]),
        ("3万元", [30000]),
        ("12%", [0.12]),
        ("12 \\%", [0.12]),
        ("12 percent", [0.12]),
        ("1e5", [1e5]),
        ("2.5E-3", [0.0025]),
        ("1.2 × 10^5", [120000]),
        ("1.2 \\times 10^{-2}", [0.012]),
        ("3/4", [0.75]),
        ("\\frac{3}{4}", [0.75]),
        ("1/0", []),
        ("1e999", []),
        ("x5", []),
        ("v1.2.3", []),
        ("none", []),
        ("5-10", []),
        ("about 7", []),
        ("5 apples", [5]),
        ("5x", []),
    ],
)
def test_ways_to_write_numbers(text, values):
    assert [found.value for found in quantities(text)] == pytest.approx(values)


@pytest.mark.parametrize(
    ("text", "value", "dimension"),
    [("5 km", 5000, "length"), ("5 m", 5, "length"), ("30 minutes", 1800, "time"), ("2 hrs", 7200, "time")]
    + [
        ("500g", 0.5, "mass"),
        ("45°", 45, "angle"),
        ("90 degrees", 90, "angle"),
        ("3 ml", 0.003, "volume"),
        ("5 apples", 5, ""),
    ]
    + [("2 million km", 2e9, "length"), ("12 inches", 0.3048, "length")]
    + [
        ("25 °C", 298.15, "temperature"),
        (r"25^\circ C", 298.15, "temperature"),
        ("25摄氏度", 298.15, "temperature"),
        ("36 km/h", 10, "length/time"),
        ("10 m/s", 10, "length/time"),
        ("9.81 m/s²", 9.81, "length/time^2"),
        ("1 g/cm^3", 1, "mass/volume"),
        ("5 mW", 0.005, "power"),
        ("5 MW", 5e6, "power"),
        ("220 V", 220, "voltage"),
        ("3 bar", 3e5, "pressure"),
        ("14.5 psi", 99973.980751, "pressure"),
        ("1 kWh", 3.6e6, "energy"),
        ("2.4 GHz", 2.4e9, "frequency"),
        ("4.7 kΩ", 4700, "resistance"),
        ("20 m²", 20, "length^2"),
        ("1 m3", 1000, "volume"),
    ],
)
def test_units_are_converted(text, value, dimension):
    (found,) = quantities(text)
    assert (found.value, found.unit.dimension) == (pytest.approx(value), dimension)


@given(st.floats(-1e12, 1e12).filter(lambda value: value == 0 or abs(value) > 1e-6))
def test_what_python_writes_is_read(value):
    for text in (f"{value:.6f}", f"{value:,.6f}", f"{value:.9e}", str(round(value))):
        assert [found.value for found in quantities(text)] == pytest.approx([float(text.replace(",", ""))])


def scored(answer, gold, **parameters):
    return numeric(f"<think>1</think><answer>{answer}</answer>", {"solution": gold}, **parameters)


@pytest.mark.parametrize(
    ("answer", "gold", "score"),
    [
        ("104.9", "100.0", 1),
        ("95", "100.0", 1),
        ("105.1", "100.0", 0),
        ("-100", 100, 0),
        ("0", 0, 1),
        ("0.001", 0, 0),
        ("2:30", "90 seconds", 0),
        ("300 °C", "300 K", 0),
        ("12%", "12%", 1),
        ("12", "12%", 1),
        ("0.12", "12%", 1),
        ("12%", 0.12, 1),
        ("12%", 12, 1),
        ("120%", 12, 0),
        ("5 km", "5000 m", 1),
        ("5", "5 km", 1),
        ("5000", "5 km", 0),
        ("5 km", 5, 1),
        ("5 kg", "5 km", 0),
        ("25 °F", "25 °C", 0),
        ("77 °F", "25 °C", 1),
        ("32 °F", "0 °C", 1),
        ("33 °C", "25 °C", 0),
        ("25°", "25 °C", 1),
        ("25 C", "25°C", 1),
        ("25", "25 °C", 1),
        ("120 mph", "120 km/h", 0),
        ("193 km/h", "120.0 mph", 1),
        ("120 km", "120 km/h", 0),
        ("5 m^-2", "5 m²", 0),
        ("2 bar", "200 kPa", 1),
        ("0.22 kV", "220 V", 1),
        ("220 A", "220 V", 0),
        ("24 months", "2 years", 1),
        ("3.2 million", "3,200,000", 1),
        (r"\boxed{42}", "42", 1),
        ("nothing", "42", 0),
        ("42 or 43 or 100", "42", 0),
    ],
)
def test_relaxed_accuracy(answer, gold, score):
    assert scored(answer, gold) == score


def test_tolerances():
    assert scored("101", 100, relative_tolerance=0) == 0.0
    assert scored("100.0", 100, relative_tolerance=0) == 1.0
    assert scored("101", 100, relative_tolerance=0, absolute_tolerance=1) == 1.0
    assert scored("5090 m", "5 km", relative_tolerance=0, absolute_tolerance=0.1) == 1.0
    assert scored("5110 m", "5 km", relative_tolerance=0, absolute_tolerance=0.1) == 0.0
    assert scored("86 °F", "31 °C", relative_tolerance=0, absolute_tolerance=1) == 1.0


def test_several_numbers_are_no_number():
    for answer in (
        " ".join(map(str, range(100))),
        "41 or 42",
        "41-42",
        "42, 43",
        "between 41 and 43",
        "40, 41, 42",
    ):
        assert scored(answer, 42) == 0.0


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        (r"24\pi", 24),
        ("24π", 24),
        (r"\boxed{\sqrt{5}}", 5),
        (r"\boxed{46\pi-24}", 24),
        ("2.0^2", 2),
        ("20√10", 10),
        ("2x+3", 3),
        ("5sqrt(3)", 5),
        ("3i", 3),
        ("2 + 2 = 4", 4),
    ],
)
def test_nothing_is_taken_out_of_an_expression(answer, gold):
    assert scored(answer, gold, relative_tolerance=0) == scored(answer, gold) == 0.0


def test_whole_golds_are_met_exactly_and_others_within_five_percent():
    assert scored("2008", 2019) == scored("2018", "2019") == scored("104.9", 100) == 0.0
    assert scored("2008", 2019, whole_tolerance=0.05) == 1.0
    assert scored("104.9", "100.0") == scored("3.3 million", "3.2 million") == scored("0.51", "1/2") == 1.0
    assert scored("105.1", "100.0") == 0.0
    assert scored("104.9", "100.0", relative_tolerance=0) == 0.0
    assert scored("3", 3.0) == 1.0


def test_nothing_is_evaluated():
    for text in ("9**9**9", "__import__('os')", "2*21", "1e99999999", "9" * 10_000):
        assert scored(text, 42) == 0.0


@pytest.mark.parametrize("gold", ["", "many", "1 to 5", True])
def test_gold_that_is_not_one_number(gold):
    assert numeric.outcome("5", {"solution": gold}).score is None


@pytest.mark.parametrize(
    ("answer", "gold", "score"),
    [
        ("1 hour 30 minutes", "90 minutes", 0),
        ("1.5 hours", "90 minutes", 1),
        ("20 square meters", "20 m²", 1),
        ("10 miles/hour", "10 mph", 1),
        ("It is 42 or 43.", "42", 0),
        ("It is 42 or 43.", "43", 0),
        ("between 42 and 43", "43", 0),
        ("The answer is either 42 or 43", "42", 0),
        ('{"answer": 42}', "42", 1),
        ('{"answer": 42, "value": 43}', "42", 1),
        ('{"answer": 41, "answer": 42}', "42", 0),
        ("42, 43, 44", "42", 0),
    ],
)
def test_a_stated_number(answer, gold, score):
    assert scored(answer, gold, relative_tolerance=0.0) == score
