"""What action spaces, data sets and languages call things: the tables of ``tables/*.json``.

`schema` says how a table is written.
"""

from swift_grpo_ext.rewards.reading.schema import (
    NAMED,
    Form,
    Meanings,
    NumberPlace,
    Pairs,
    Parts,
    Phrase,
    Tables,
    Word,
    load,
)


class ActionWords(Tables):
    """Actions on a screen."""

    kinds: Meanings  # the kind, and behind a space the text that the word says by itself: "scroll up"
    arguments: Meanings  # what an argument holds
    keys: Meanings  # of a keyboard
    statuses: Meanings  # at the end of a task
    directions: Meanings
    opposite: Pairs  # of a direction
    buttons: Meanings  # the click that each button of a mouse makes
    times: Pairs  # how often it is pressed, to the click that this makes
    empty_texts: tuple[Word, ...]  # what data sets write where nothing is typed
    text_of: (
        Pairs  # kinds of action, to the arguments that hold their text in place of ``text``; "-" if none does
    )

    thought: Phrase  # a line in which no action is
    acted: Phrase  # what stands before an action
    asked_at_end: Phrase
    asked: Phrase  # before an action that is only asked for


class ToolWords(Tables):
    """Tool calls."""

    noise: tuple[Word, ...]  # before every tag
    quotes: tuple[Word, ...]  # Gemma's
    names: tuple[Word, ...]  # keys of the tool's name
    arguments: tuple[Word, ...]  # keys of what it is given
    parts: Parts
    # Where a call begins: Qwen3-Coder, Qwen3.5, Seed-OSS; MiniMax, DeepSeek and MiniCPM; GLM-4.5, Hunyuan,
    # Spark and Ling; Kimi K3.
    tagged: Phrase
    argument: Phrase  # where one begins
    end: Phrase  # of an argument
    plain_tag: Phrase  # an argument that is a tag of its own, as MiniMax M3 writes it
    before_json: Phrase  # ReAct; Qwen's, DeepSeek's and Kimi's marks, Gemma's ``call:``


class PlaceWords(Tables):
    """Boxes and points with keys."""

    keys: Meanings
    coordinates: Meanings  # one number
    box_shapes: tuple[tuple[Word, ...], ...]  # coordinates that make a box, the first that are there count
    point_shapes: tuple[tuple[Word, ...], ...]
    nothing: tuple[Word, ...]  # what a gold says where nothing is there
    parts: Parts
    conjunction: Phrase  # before a name
    first_words: Phrase  # of a sentence, before a name
    last_words: Phrase  # between a name and its place
    no_label: Phrase  # words that are no name
    between_corners: Phrase
    as_one_box: Phrase  # between two corners, where points may be listed
    listed: Phrase  # between two places of one name


class QuantityWords(Tables):
    """What stands behind a number."""

    # By dimension and size in its base unit; behind a space what is added, where a scale has its own zero.
    units: dict[Word, Meanings]
    prefixes: dict[Word, float]
    symbols: Pairs  # of units whose case counts, to their dimension; each may have a prefix
    scales: Meanings  # the factor
    numbers: Meanings  # words of European languages, by value
    classifiers: Word  # characters that stand between a Chinese or Japanese number and what is counted
    translations: Meanings  # what tells things apart, by its English word
    nameless: Word  # words of a question how many, or of its answer, that name nothing


class PolarityWords(Tables):
    """Yes and no. All but the words are compared with texts in lower case."""

    words: Meanings
    parts: Parts
    judged: (
        Phrase  # what is said of a claim, which may be there: whether it is denied, and whether it is true
    )
    skipped: Phrase  # between an announcement and the word
    exists: Phrase  # that there is something, or that there is not
    negated: Phrase
    lead: Phrase  # of a sentence, before what it states
    plain: Phrase  # one short sentence, as good a yes as its negation is a no
    double: Phrase  # a negation of a negation
    contrast: Phrase  # what is not so, behind what is
    explained: Phrase  # behind what is so
    concluding: Phrase  # the start of a sentence
    opinion: Phrase  # before the word
    joint: Phrase  # between the two words of a hedge
    no_thing: Phrase  # the word is part of something else
    both: Phrase
    denied: Phrase  # the word itself
    conceded: Phrase
    said: Phrase  # a yes or a no, and the sentence behind it
    not_sure: Phrase
    neither: Phrase


class OptionWords(Tables):
    """Multiple choice."""

    places: Meanings  # which place in the list stands for which letter
    parts: Parts
    leading: Phrase  # the letter before its option's text
    several: Phrase  # letters and nothing else
    explained: Phrase  # where reasons begin
    chosen: Phrase  # what announces a choice
    before_letter: Phrase  # between an announcement and the letter
    letters: Phrase  # those that an announcement names
    is_article: Phrase  # the letter is the word "a"
    rejecting: Phrase  # before an option
    rejected: Phrase
    wrong: Phrase  # behind letters
    echoed: Phrase  # the question again, and options that are marked as wrong
    between: Phrase  # options that are chosen together
    is_right: Phrase
    closing: Phrase  # the last words, which name a letter
    opening: Phrase  # a letter, and reasons
    # Where a letter is chosen: behind a sign or words that lead to it, unless it is but described ("option B
    # is about a cat"), or before words that say that it is right ("only B fits").
    placed: Phrase
    denying: Phrase
    counted: Phrase  # an option by its place in the list


class SpanWords(Tables):
    """Keys of moments of a video."""

    starts: tuple[Word, ...]
    ends: tuple[Word, ...]
    holders: tuple[Word, ...]  # words in keys of what holds moments
    parts: Parts
    written: Phrase  # a time with its units
    time: Phrase
    pairs: Phrase  # of times
    choice: Phrase  # between two spans of which neither is stated


class Marks(Tables):
    """Marks that models put around parts of a completion: the opening one, and what closes it."""

    thinking: Pairs
    answers: Pairs
    ends: tuple[Word, ...]  # of a turn
    keys: tuple[Word, ...]  # in JSON, of the answer; the first that is there counts


class Formats(Tables):
    """Formats that prompts ask for.

    In turn what stands before a mark, and the mark; last what stands behind them all. "" is white space,
    "..." something visible, which is a block, "?" anything.
    """

    grammars: dict[str, tuple[str, ...]]


class Signs(Tables):
    """Signs."""

    wrapping: Pairs  # opening and closing, around a whole answer
    latex: Pairs  # a sign of Unicode and what it is in LaTeX
    typed: tuple[Form, ...]  # short formulas in LaTeX, as people type them
    to_latex: tuple[Form, ...]  # what people type, before signs of Unicode are LaTeX
    in_latex: tuple[Form, ...]  # the rest, when they are


class StatementPhrases(Tables):
    """How answers are stated in prose."""

    parts: Parts
    aside: Phrase  # what is said beside a number
    explanation: Phrase  # a heading behind which no answer is given
    label: Phrase  # what announces an answer
    unsure: Phrase  # words of somebody who does not commit to an answer
    corrected: Phrase  # words after which a second statement takes the first one back, or concludes
    taken_back: Phrase  # with which a writer takes back what stands before


class DoubtPhrases(Tables):
    """Who will not or cannot answer, and who denies a value: English, Spanish, French, German, Chinese."""

    parts: Parts
    refused: Phrase  # who cannot look, or will not answer
    request: Phrase  # who has nothing to look at
    refusing: Phrase  # a refusal with all that it says
    negation: Phrase  # what takes a value out
    negated: Phrase  # right before a value
    rejected: Phrase  # right behind a value
    denied_clause: Phrase  # somewhere before a value in its clause


class AssertionPhrases(Tables):
    """What a text does not assert, though it says it; `reading.assertion` has the order."""

    parts: Parts
    turn: Phrase  # where a clause ends, and a new one begins
    asks: Phrase  # the end of a sentence that asks
    suspended: Phrase  # in lower case: with which a clause asserts nothing
    hearsay: Phrase  # what others say, up to a "but"
    embedded: Phrase  # what stands under words that do not assert it, up to a "but"
    retracted: Phrase  # a sentence, and words behind it that take it back
    withdrawn: Phrase  # in lower case: takes back all that stands before it


class AnswerPhrases(Tables):
    """Around a short answer."""

    parts: Parts
    struck: Phrase  # what is struck out, or is not shown
    command: Phrase  # of LaTeX, around upright text
    between_boxes: Phrase
    sentence: Phrase  # the start of a short sentence that ends in what it says
    led_in: Phrase  # before that
    left_open: Phrase  # with which a sentence says something else, or more than one thing
    preamble: Phrase
    last_word: Phrase  # behind that


class NumberPhrases(Tables):
    """Which number a text means."""

    parts: Parts
    after_copula: NumberPlace
    concluded: NumberPlace
    but: Phrase
    aside: Phrase  # behind the number that is meant
    asked_in: Phrase  # a scale or a unit
    choice: Phrase  # between two numbers of which either may be meant
    joined: Phrase  # between two ends of a range
    changed: Phrase  # before a range that is none
    year: NumberPlace
    between: Phrase
    clause: Phrase  # up to the end of what is said of one number
    bound: Phrase
    not_stated: tuple[NumberPlace, ...]
    before_folding: tuple[Form, ...]  # which are gone, or mean something else, once Unicode is folded
    folded: tuple[Form, ...]


class CountPhrases(Tables):
    """How many there are."""

    parts: Parts
    nothing: Phrase
    single: Phrase
    not_one: Phrase
    couple: Phrase
    time: Phrase  # which is no count
    none_first: Phrase
    key: Phrase  # of JSON
    totals: tuple[NumberPlace, ...]
    first_thing: NumberPlace  # of several, which is asked for where no question says so
    no: Phrase  # before a thing
    beside: tuple[NumberPlace, ...]  # what is near the count but is not it, and what only numbers an object


class MathematicsPhrases(Tables):
    """Which expression a text states."""

    words: Phrase  # of prose
    copula: Phrase
    sentence: Phrase  # its end
    given: Phrase  # before what is given
    few_words: Phrase  # between two boxes of a gold
    rejected: Phrase  # what is not the result
    unequal: Phrase


class AbsencePhrases(Tables):
    """That a place is not there, or that nothing is."""

    empty: Phrase
    empty_field: Phrase  # of JSON
    something: Phrase
    negated: Phrase
    denied_place: Phrase
    either: Phrase
    not_it: Phrase  # the name of a place, which says that it is not


DIALECTS = load(Marks, "dialects")
FORMATS = load(Formats, "formats")
QUANTITIES = load(QuantityWords, "quantities")
WRITING = load(Signs, "writing")
NAMED["quantities.classifiers"] = QUANTITIES.classifiers
# In the order in which phrases refer to others.
STATEMENTS = load(StatementPhrases, "statements")
DOUBTS = load(DoubtPhrases, "doubts")
ASSERTIONS = load(AssertionPhrases, "assertions")
ANSWERS = load(AnswerPhrases, "answers")
NUMBERS = load(NumberPhrases, "numbers")
COUNTS = load(CountPhrases, "counts")
MATHEMATICS = load(MathematicsPhrases, "mathematics")
ABSENCES = load(AbsencePhrases, "absences")
ACTIONS = load(ActionWords, "actions")
OPTIONS = load(OptionWords, "options")
PLACES = load(PlaceWords, "places")
POLARITY = load(PolarityWords, "polarity")
SPANS = load(SpanWords, "spans")
TOOLS = load(ToolWords, "tools")
