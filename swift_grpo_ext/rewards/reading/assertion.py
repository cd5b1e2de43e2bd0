"""What a text asserts: what it states itself, not what it asks, supposes, heard, doubts or takes back.

One decision for all rewards, in the order of `asserted`:

1. `_WITHDRAWN` takes back all that stands before it ("scratch that"), `_RETRACTED` the sentence before it.
2. A sentence that asks asserts nothing (`_ASKS`); nor does a clause with words that suspend it
   (`_SUSPENDED`): conditions, guesses, possibilities, examples, what one thought at first, what is usually
   so, or was so at another time; and `_FIRST_PERSON`: what a writer says of itself but sees, counts, works
   out or chooses. A clause is a part of a sentence, up to a "but" or ";" or ", so".
3. Words that embed what follows them (`HEARSAY`, `_EMBEDDED`: "she says that", "it is false that", "it might
   be") leave out the rest of their clause.
4. Refusals (`reading.doubt`) are left out.

What denies one value ("not 5", "5 is wrong") is asked where the value stands: `NEGATED`, `REJECTED`.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

from swift_grpo_ext.rewards.reading.doubt import without_refusals
from swift_grpo_ext.rewards.reading.statement import folded, taken_back
from swift_grpo_ext.rewards.reading.words import any_case

T = TypeVar("T")
MAX_PROSE = 4_000

_WRONG = (
    r"(?:wrong|incorrect|false|untrue|a mistake|an error|a lie|silly|foolish|absurd|misleading|nonsense"
    r"|premature|rash|hasty"
    r"|not (?:true|right|correct|the case))"
)
# The start of what may be an answer, in lower case: 5, b, yes, [1, 2], click(1, 2)
_VALUE = (
    r"[*_\"'“$(\[<{\\]{0,4}(?:\d\w*|[b-hj-z](?![a-z])|a(?=[.,;)]|\Z)|(?:yes|no|one|two|three|four|five"
    r"|six|seven|eight"
    r"|nine|ten|left|right|click|tap|type|scroll)\b)"
)
# "Is it 4.5?": one sentence with the marks that end it
_SENTENCE = re.compile(r"(?:[^.!?。！？\n]|\.(?!\s|\Z)|(?<=\b[eE]\.[gG])\.|(?<=\bi\.e)\.)*[.!?。！？\n]*")
# ", so it is": where a clause ends, and a new one begins
_TURN = any_case(
    r"(?=\b(?:but|however|yet|instead|although|though|nevertheless|nonetheless)\b|[;；]"
    r"|, (?:so|hence|thus|therefore|which (?:is|was))\b|但|不过|而是|然而|其实|所以|因此)"
)
# "Is it B? ": also "是B吗", "B还是C"
_ASKS = re.compile(
    r"\b(?:perhaps|maybe|possibly) not\b[\s.]{0,4}\Z|[?？][\s*_\"'”)]{0,4}\Z|吗[。\s]{0,4}\Z"
    r"|还是[^，,]{1,12}\Z"
)
_PERHAPS = (
    r"(?:perhaps|maybe|possibly|conceivably|potentially|hopefully|presumably|supposedly|allegedly"
    r"|wahrscheinlich|vermutlich|quizás?|tal vez|peut-être|vielleicht|möglicherweise"
    r"|eventuell|forse|talvez)"
)
_SUSPENDING = {
    "condition": (
        r"unless|otherwise|used to be|as long as|on condition|only if|assuming|supposing"
        r"|(?:an)?other (?:world"
        r"|circumstances)"
        r"|different (?:world|circumstances|conditions)|would(?: not)?(?: have|['’]ve)"
        r"|provided (?:that )?(?:the|it|this|that|there|all|we|you|nothing)"
        r"|(?<!even )(?<!as )if (?!(?:you|we)\b(?! (?:were|had|insist|ask|trust|believe|assume))"
        r"|necessary|needed|not\b|any\b|i(?:['’]m| am) not mistaken)\w{1,16}"
        r"|let(?:['’]s| me| us) (?:assume|suppose|imagine|think about|consider|look at|examine|evaluate)"
        r"\b[^:!?\n]*\Z"
    ),
    "possibility": (
        rf"{_PERHAPS}(?:,? (?:the answer is |it(?:['’]s| is) |there (?:are|is) )?{_VALUE}|\W*\Z)"
        r"|(?:might|may|could)(?: \w{2,9}){0,2} be(?! (?:seen|found|counted|identified|observed|read"
        r"|made out))"
        r"|(?:a|one|another) (?:\w{2,9} )?(?:possibility|candidate|chance)"
        r"|(?:is|are|seems?|would be|looks) (?:\w{2,9} )?(?:possible|plausible|conceivable|imaginable)"
        r"|(?:can|could)(?:not|n['’]t|['’]t| not) be (?:ruled out|excluded|dismissed)"
        r"|between \w{1,12} and \w{1,12}, (?:probably|likely|say|so)"
        r"|or (?:something|somewhere|whatever|thereabouts)|in the region of"
        r"|(?<!\bi )(?<!best )(?<!educated )guess(?:ing|es|work)?"
        r"|podrían?|pourrait|könnten?|potrebbe|puede que|a lo mejor|hypothetical(?:ly)?|in theory"
        r"|theoretically"
        r"|(?:gut|hunch|intuition|instinct)s?(?: feeling)? (?:says?|tells|is|would)|toss-?up|coin (?:toss"
        r"|flip)"
        r"|(?:flip|toss)(?:ping|ing)? a coin|(?:shot|stab) in the dark|give or take|ballpark|for now"
        r"|for the moment"
        r"|tentative(?:ly)?|provisional(?:ly)?|(?:sounds|feels|seems|looks) about right"
        r"|an? (?:\w{2,10} )?(?:popular|common|frequent|tempting|attractive|plausible|reasonable|possible"
        r"|strong)"
        r" (?:answer|choice|option|contender|pick|bet)|(?:are|were) (?:all |both |equally ){1,2}\w{3,12}"
        r" (?:answer|count|choice|option|number|value)s|any (?:number|value|integer|amount|count) (?:from"
        r"|between)"
        r"|somewhere (?:between|around|near)|or (?:its|the) (?:complement|opposite|reverse)"
        r"|(?:un|not )likely (?:that|to be)|(?:might|may|could) (?:fit|work|match|apply|hold|suffice)"
        r"|is (?:only |just )?(?:one|an) (?:\w{2,10} )?(?:option|possible answer)|some(?:thing| number"
        r"| value) like|why not|there should (?:be|have been)|improbabl[ey]|doubtful|a miracle|far-?fetched"
        r"|absurd|nonsense"
    ),
    "example": (
        r"(?:example|sample|template|format|placeholder|demo)(?: [\w']{1,12}){0,3}\s?(?::|(?:is|like)\b|=)"
        r"|as a placeholder|as an? (?:default|dummy|filler)|(?:a|the) default"
        r"|mak(?:e|ing) (?:(?:something|it|one|an? \w{2,10}) up|up (?:something|an? (?:number|answer|value"
        r"|count)))"
        r"|made[- ]up|invent(?:ed|ing)?|at random|random(?:ly)? (?:pick|cho\w{2,5}|answer|number"
        r"|select\w{0,3})"
    ),
    "another time": (
        r"there will be|had been|before (?:some(?:one|body)|they|he|she)\b|letzte[ns]? (?:woche|monat"
        r"|jahr)|yesterday|(?<!from )(?<!than )(?<!the )(?:last|next) (?:night|week|month|year"
        r"|time|spring|summer"
        r"|autumn|fall|winter"
        r"|monday|sunday|semester|season)|for a moment|gestern|morgen waren?|tomorrow|the day before"
        r"|long ago|(?:years?|months?|weeks?|days?|hours?"
        r"|minutes?) ago"
        r"|(?:another|a different|(?:an|the) other|(?:the )?(?:previous|next|last)) (?:image|picture"
        r"|photo(?:graph)?"
        r"|frame|shot"
        r"|question|time|task|example|chart|figure|video|clip|screen(?:shot)?|page)(?![ -]?s\b)"
    ),
    "habit": r"normally|usually|typically|ordinarily|in general|as a rule",
    "hearsay": (
        r"(?:ha[sd]|have|is|are|was|were) (?:often |sometimes )?(?:been )?(?:said|claimed|rumou?red|alleged"
        r"|believed"
        r"|reputed)|(?:whoever|any(?:one|body)|those|every(?:one|body)) (?:who )?(?:says?|saying|answers?"
        r"|chooses?|picks?|thinks?|claims?)|(?<!unlike )(?<!to )what (?:one|you|people|they|others"
        r"|some) (?:gets?|want|would|might|says?"
        r"|thinks?|expects?)|(?:suggested|claimed|proposed|marked|chosen) by (?:the |an? )?(?:user|others?"
        r"|some(?:one|body)|annotator|detector|model|them|him|her|you)|been suggested|rumou?rs?(?: has it)?"
        r"|in (?:his|her|their|your"
        r"|others['’]?) (?:opinion"
        r"|view)"
        r"|(?:in|by) (?:the )?(?:opinion|view|words|eyes|mind) of|except (?:for )?me"
        r"|(?:previous|earlier) (?:[\w'’]{1,16} ){0,2}(?:answer|response|output|reply)s?"
        r"|(?:an)?other \w{1,16}['’]s? (?:answer|response|output|reply)s?"
        r"|(?:nobody|no one|no-one|none of (?:us|them|you)) (?:could|can|would|will|has|have|had|should"
        r"|seriously"
        r"|told|says?|said|thinks?|claims?|believes?)"
    ),
    "first thought": (
        r"before (?:noticing|reali[sz]ing|seeing|i (?:noticed|reali[sz]ed|saw))|i(?:['’]d| would) (?:like"
        r"|love) to"
        r" (?:say|answer|choose|pick|claim)|my (?:first|second|third|initial|original|earlier|previous"
        r"|other) \w{1,16}"
        r"|i(?: had|['’]d)? (?:(?:at )?(?:first|initially|originally|once|almost|nearly|briefly|really) )?"
        r"(?:thought|believed|assumed|expected|figured|supposed|suspected|answered|guessed|imagined|hoped"
        r"|wanted"
        r"|used to|said|was (?:going|about|tempted|inclined) to)(?! (?:about|through|hard|carefully))"
        r"|i (?:hope|wish|deny|disagree|dispute|doubt|no longer)(?! (?:this|that|it) (?:helps|answers))"
        r"|which i (?:refuse|decline|reject|doubt|dispute|do not|don['’]t|have|will not|won['’]t)"
    ),
    "request": (
        r"(?:please|kindly|can you|could you|would you) (?:\w{2,10} )?(?:confirm|verify|check|tell|say"
        r"|answer)"
        r"|(?:tell|ask|remind|convince) (?:me|us)|let me know (?:if|whether)"
    ),
    "mistake": (
        rf"{_WRONG} to (?:\w{{2,10}} )?(?:say|answer|claim|choose|pick|click|think|believe|state)"
        rf"|(?:answering|saying|choosing|picking|clicking|claiming|selecting) [^.!?\n]{{1,80}} (?:is|was"
        rf"|would be)"
        rf" {_WRONG}"
    ),
}
"""Words, in lower case and by what they make of it, with which a clause asserts nothing."""
# "i see 5", "my count is 5": what a first person asserts; all else that it says of itself ("i like b", "my
# lucky number is 5") answers nothing
_FIRST_PERSON = (
    r"\A(?:[^,]{0,80}, )?[\W_]{0,6}(?:(?:so|and|but|yet|then|now|therefore|thus|hence|well"
    r"|okay) )?(?:(?:i|we)"
    r"(?!['’]?(?:m|re|ve|ll|d)?\b(?: \w{2,6}(?:n['’]?t|not)\b| (?:mean|meant)\b|(?: (?:am|are|can|could"
    r"|do|did|have|has|had|will|would|shall|should|must|need"
    r"|to|be|the|all|both|now|also|then|only|just|first|still|once|again|not|indeed|actually|clearly"
    r"|\w{3,12}ly"
    r"|therefore|thus|hence|already|going|able)){0,4} (?:see|saw|seen|count|find|found|get|got|arrive"
    r"|choose|put|vote|tall|lean|reckon|figure|judge|discern|distinguish|declare|classif|enumerat"
    r"|chose|pick|select|go(?:ing)?\b|opt|believe|think|say|answer|conclude|read|measur|estimat|calculat"
    r"|comput"
    r"|obtain|determin|deduc|deriv|infer|identif|spot|detect|locat|observ|notic|note|make|made|confirm"
    r"|confident"
    r"|certain|sure|positive|verif|check|look|zoom|recount|examin|inspect|analy|us(?:e|ed|ing)\b|appl|solv"
    r"|simplif|add|subtract|multipl|divid|substitut|convert|compar|consider|eliminat|rule|exclud|reject"
    r"|click"
    r"|tap|press|type\b"
    r"|enter|scroll|swipe|drag|open|wait|recogni|left|end up|settl|come|came|reach|report|tell"
    r"|state"
    r"|know|set|take|took|sum|round|draw|evaluat|appear|expect|understand|\w{1,2}\b)))"
    r"(?=['’ ])"
    r"|(?:my|our|your) (?!(?:[\w-]{1,12} ){0,3}(?:answer|count|recount|total|result|reading|estimate"
    r"|measurement"
    r"|calculation|computation|conclusion|verdict|choice|pick|selection|final|tally|response|analysis"
    r"|left|right"
    r"|solution|prediction|action|next step|task|goal|best)\b))"
)
# "if i had to guess, it is 5"
_SUSPENDED = re.compile(
    rf"\b(?:{'|'.join(_SUSPENDING.values())})(?!\w)"
    rf"|{_FIRST_PERSON}"
    r"|\A\W{0,4}(?:let \$?[a-z](?=\$? ?=|\$? be)|assume|suppose|imagine|pretend|e\.g|for (?:example|instance)"
    r"|(?:had|should|were) (?:it|he|she|they|we|i|you|there|the \w{1,16}))\b|\(or not\)|\A\W{0,4}if (?:any"
    r"|needed|necessary|possible|applicable)\b"
    r"|(?:也许|或许)(?=是?\d)|昨天|前天|去年|上(?:周|个月|次)|明天|如果|要是|假如|除非|否则|通常|一般(?:来说|情况下)|听说|据说|かもしれ|たぶん|아마"
)
_SOMEBODY = (
    r"(?:users?|you|they|people|friends?|others?|some(?:one|body)?|many|everyone|everybody|he|she|captions?"
    r"|labels?|annotators?|analysts?|experts?|colleagues?|critics?|neighbou?rs?|teachers?|students?|models?"
    r"|assistants?|detectors?|classifiers?|manuals?|guides?|tutorials?|documentation|scripts?|recipes?"
    r"|prompts?|hints?|instructions?|(?:answer |\w{3,10}['’]s )keys?"
    r"|chatgpt|gpt)"
)
_SAID = (
    r"(?:ask(?:s|ed)?|says?|said|claim(?:s|ed)?|thinks?|thought|believe[sd]?|suggest(?:s|ed)?"
    r"|t(?:old|ells?) (?:me|us)|choo?ses?|chose|pick(?:s|ed)?|answer(?:s|ed)?|wrote|writes?|vote[sd]?"
    r"|agree[sd]?"
    r"|expect(?:s|ed)?|(?:wants?|wanted|would like)(?= (?:me|us|\d)\b)|marked|annotated|estimate[sd]?"
    r"|report(?:s"
    r"|ed)?|insist(?:s|ed)?"
    r"|prefers?|hopes?)"
)
# "The user said that there are 7, ": what others say, up to a "but"
HEARSAY = any_case(
    r"(?:\baccording to (?:the )?(?:user|you|them|him|her|others?|some\w{0,4}|people|experts?|critics"
    r"|(?:an?|his|her|their|your|another|other"
    r"|my(?! (?:calc|count|read|analy|estim|meas))) \w{2,14})\b"
    rf"|\b{_SOMEBODY}\b (?:\w{{1,8}} )?{_SAID}\b|\bwhether\b"
    r"|(?:有人|用户|别人|他们?|她|网友|题目|[友师学事家妈爸姐哥弟妹客者员]都?)(?:说|认为|觉得|选)|我猜|\b(?:sagt|meint|behauptet|glaubt)\b"
    r"|\b(?:titles?|captions?|headlines?|subtitles?|file ?names?|alt text|prompt|lyrics|song"
    r"|book) (?:[\w']{1,12} ){0,4}"
    r"(?:is|are|says?|reads?|claims?|mentions?|contains?)\b"
    r"|\ban? (?:\w{2,12} )?(?:friend|student|child|user|person|colleague|stranger|annotator|detector"
    r"|model) \w{3,10}\b"
    r"|\b(?!(?:i|we|to|and|or|not|also|ha[sd]|have|would|might|may|could)\b)\w{2,14}(?: (?:once|ha[sd]|have"
    r"|would|might|may|could|often|already|also)){0,2} (?:told (?:me|us)|repl(?:ied|ies)|responded"
    r"|hope[sd]?(?: for)?|swears?|swore"
    r"|reckons?|presume[sd]?|(?:(?<=would )|(?<=might )|(?<=could )|(?<=may ))(?:say|think|click|tap|answer"
    r"|choose|pick|argue)|answered|thinks|believes|claim(?:s|ed)|suspects?|insist(?:s|ed)?"
    r"|argue[sd]?|guess(?:es|ed))\b)"
    r"(?:(?!\b(?:but|however)\b|但|不过|其实)[^.;!?。；！？\n]|\.(?=\d)){0,200}"
)
_REST = (
    r"(?:(?!\b(?:but|however|yet|rather|instead|although)\b|, (?:i|it|so|the)\b|但|不过|而是|然而"
    r"|应该?是)[^.!?;。！？；\n]|\.(?=\d))*"
)
# "It is false that there are 5": what stands under words that do not assert it, up to a "but"
_EMBEDDED = any_case(
    r"(?:\b(?:it|that)(?: is| was| seems|['’]s) (?:\w{2,12} )?"
    rf"(?:{_WRONG}|unclear|uncertain|doubtful|(?:im)?possible|unlikely|not (?:\w{{2,12}} )?(?:clear"
    rf"|certain|sure))"
    r"(?=,? (?:that|if|whether|to)\b)"
    r"|\b(?:i|we) (?:\w{2,10} )?(?:disagree|doubt|wonder|deny|dispute)\b"
    r"|\b(?:i|we) (?:do not|don['’]t|did not|cannot|can['’]?t|can not|could not|would not|wouldn['’]t)"
    r" (?:\w{2,8} )?(?:think|believe|say|claim|confirm|know|agree|assume|verify|guarantee|bet|rely|swear"
    r"|vouch|trust|stake)\b"
    r"|\b(?:such as\b|e\.g\b\.?|for (?:example|instance)\b)"
    r"|不可能是|我?(?:并?不)(?:认为|觉得|相信|同意|确定|敢说)|我(?:很|有点)?怀疑|(?:不能|无法)(?:确认|确定)|没有?人会说"
    r"|(?:错误|不正确的?)(?:的)?答案[:：]|(?:假设|假如|倘若|(?:可能|也许|或许)(?!是?\d))"
    r"|\b(?:wrong|worst|incorrect|unlikel\w{1,3}|least \w{3,12}) (?:answer|option|choice|action|value"
    r"|number|box|span|click)s?"
    r" (?:is|are|was|would be)\b|\b(?:question|task|problem|grader|checker)s? (?:expects?|wants?)\b"
    r"|\b(?:not sure|unsure|uncertain) (?:that|if|whether)\b|\bwho knows\b|\bno idea (?:if|whether)\b"
    r"|\b(?:refuse|unable|not able|impossible) to (?:say|confirm|claim|state|verify|tell)\b"
    r"|(?:(?<=[.!?;\n] )|(?<=\n)|\A)[*_>\"( -]{0,4}(?:(?:perhaps|maybe|possibly|conceivably|allegedly"
    r"|supposedly),? (?!\d)"
    rf"|{_WRONG}(?: (?:answer|option|choice|value)s?)?\s?[:：]))" + _REST
)
# "There are 5. That is wrong.": a sentence, and words behind it that take it back
_RETRACTED = any_case(
    r"说[^。！？\n]{1,60}是(?:不对|错误?)的|(?:(?<=[!?。！？\n])|(?<=\.\s)|\A)(?:[^.!?。！？\n]"
    r"|\.(?=\d))*[\s,.;:!?…。，；！–—-]{1,6}(?:(?:开玩笑的?|我收回|不对|这(?:是错误?的|不对)|才怪)(?=\W*(?:\Z|\n))"
    r"|or (?:maybe )?not(?=\W*(?:\Z|\n))"
    rf"|(?:actually|wait),? no(?=\W*(?:\Z|\n))|(?:no,? |but )?(?:that|which|this)(?: is| was"
    rf"|['’]s) {_WRONG}(?! to\b)"
    r"|(?<=[.…] )not(?=\W*\Z)|(?<=\.\.)\.? ?not(?=\W*\Z)|(?<=[–—-] )(?:wrong|incorrect|false)(?=\W*(?:\Z"
    r"|\n)))"
)
# " - scratch that": takes back all that stands before it, in lower case
_WITHDRAWN = re.compile(
    r"[(\s,.;:!?…。，；！–—-](?:(?:scratch|strike|forget|ignore|disregard) (?:that|it|this|what i|my"
    r"|the above"
    r"|all of (?:that|this))\b|never ?mind\b|i (?:retract|withdraw|revoke|take) (?:that|it|this"
    r"|my \w{2,10})\b"
    r"|(?:but )?i (?:was|am|may be|might be|could be|must be) (?:wrong|mistaken)\b|(?:just )?kidding\b"
    r"|(?:but )?i no longer (?:do|think|believe)\b|(?:on|upon) second thoughts?,? (?=i |no\b)"
    r"|(?=otherwise\b)"
    r"|no,? (?:that|it|this) (?:can(?:not|['’]t| not)|could(?: not|n['’]t)) be(?: (?:right|true|correct"
    r"|it))?"
    rf"|or (?={_PERHAPS}\b)|(?={_PERHAPS},? (?:the answer is |it(?:['’]s| is) )?{_VALUE}\w*\W{{0,4}}"
    r"(?:\Z|[.,;!?\n]))|but (?:no|it (?:is|was) not)(?=\W*\Z)|i (?:suppose|guess|imagine)(?=\W*\Z)"
    r"|(?:(?:but|and|yet|though|although),? )?(?=i (?:would not|wouldn['’]t|cannot|can['’]t|do not"
    r"|don['’]t)"
    r" (?:bet|rely|swear|vouch|guarantee|trust|stake)\b)|don['’]t (?:quote|hold) me\b|take (?:it|this"
    r"|that) with\b"
    r"|(?:that|it|this)(?:['’]s| is) (?:just |only |merely )?(?:an? |my )?(?:\w{2,12} )?(?:guess|hunch"
    r"|speculation"
    r"|conjecture|shot in|stab in|joke|placeholder|bluff)\b|(?:one|any|all|some|either) of (?:those|these"
    r"|them)(?=\W*\Z)"
    r"|(?:take your|pick|choose) (?:pick|one|any|whichever)\b"
    r"|(?:but|yet|though|although),? (?:the|this|my) \w{2,12} (?:is|was) (?:unreadable|illegible|missing)"
    r"|(?:(?:but|though|although) )?(?:i(?:['’]m| am) )?(?:\w{2,10} )?(?:not (?:\w{2,10} )?(?:sure|certain)"
    r"|unsure"
    r"|uncertain)(?=(?: (?:about|of) (?:it|that|this))?\W*\Z)"
    r"|(?:i (?:really )?(?:do not|don['’]t) (?:really )?know|(?:i have )?no (?:idea|clue)"
    r"|who knows)(?=\W*\Z))"
)


def without_questions(text: str) -> str:
    """The text without what it asks, supposes, or heard from others; empty if nothing is left."""
    sentences = (sentence for sentence in _SENTENCE.findall(text) if not _ASKS.search(sentence[-40:]))
    clauses = (clause for sentence in sentences for clause in _TURN.split(sentence))
    return HEARSAY.sub(
        " ", "".join(part for part in clauses if not _SUSPENDED.search(part.casefold()))
    ).strip()


@lru_cache(maxsize=32)
def asserted(text: str, refusals: bool = False) -> str:
    """The text without what it does not assert, or (unless these are kept) refuses.

    Of a long text the last `MAX_PROSE` characters are looked at.
    """
    end = text[-MAX_PROSE:]
    withdrawn = [mark.end() for mark in _WITHDRAWN.finditer(folded(end))]
    end = without_questions(end[max(withdrawn, default=0) :])
    if not refusals:
        end = without_refusals(_EMBEDDED.sub(" ", _RETRACTED.sub(" ", end)))
    return text[:-MAX_PROSE] + end


def stated(text: str, read: Callable[[str], T | None], refusals: bool = False) -> T | None:
    """What `read` finds in what a text asserts: behind the last thing that it takes back, else in all of it.

    `read` gives None where it finds nothing.
    """
    values = (read(asserted(part, refusals)) for part in taken_back(text))
    return next((value for value in values if value is not None), None)
