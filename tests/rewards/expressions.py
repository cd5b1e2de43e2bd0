"""Numbers as LaTeX, for comparisons with other implementations."""

from hypothesis import strategies as st

number = st.integers(-30, 30)


@st.composite
def expressions(draw):
    """A number as LaTeX, in one of several forms that may be equal to others."""
    a, b = draw(number), draw(st.integers(1, 12))
    forms = (
        str(a),
        rf"\frac{{{a}}}{{{b}}}",
        f"{a / 4}",
        rf"{a}\sqrt{{{b}}}",
        f"{a}+{b}",
        rf"{b}^{{{abs(a) % 4}}}",
    )
    return draw(st.sampled_from(forms))
