"""What makes an answer none: a question instead of a statement, a refusal, a negation before the value."""

import re
from collections.abc import Callable
from typing import TypeVar

from swift_grpo_ext.rewards.reading.statement import UNSURE, taken_back
from swift_grpo_ext.rewards.reading.words import any_case

T = TypeVar("T")
MAX_PROSE = 4_000


_SEEN = r"(?:image|picture|photo(?:graph)?|screenshot|figure|video|attachment|file|question)s?"
# "I am unable to ": then any verb is a refusal but those of looking, of which an absence is said, too
_I_CANNOT = (
    r"\b(?:i|we)(?:['’]m| am|['’]re| are)? "
    r"(?:can(?:not|['’]?t| not)|(?:un|not )able to|could(?: not|n['’]t)) "
)
# "I can't see the image": who cannot look, or will not answer
_REFUSED = any_case(
    r"\b(?:can(?:not|['’]?t| not)|could(?: not|n['’]t)|(?:un|not )able to|(?:im|not )possible to"
    r"|won['’]t|will not"
    r"|refuse to|no way (?:\w{1,8} ){0,3}(?:to|of)|have the ability to|(?<!not )hard to"
    r"|(?<!not )difficult to)(?! be (?:the"
    r"|confirmed"
    r"|verified|shown)\b)(?: \w{1,12}){0,2}? ?"
    r"(?:tell|say|know|answer|help|assist|comply|determined?|decide|judged?|count|process|provide|respond"
    r"|verify|confirm|choose|pick|show|give"
    r"|comment|open|load|access|display|locate objects|detect objects"
    rf"|(?:see|view|find|locate|look at) (?:(?:the|an?|any|your|this|that) )?(?:{_SEEN}\b|it\b|(?:her|his"
    rf"|their"
    rf"|its) ))"
    r"|\b(?:can(?:not|['’]?t)|could(?: not|n['’]t)|unable to) (?:see|locate) (?:the|this|that|your)"
    r" (?!\w{1,16}ing\b)"
    rf"|{_I_CANNOT}(?!see|find|spot|detect|locate|identify|notice|discern|observe|be\b|but\b|help but"
    rf"|only|think of|imagine)"
    r"[a-z]{3}"
    rf"|\b(?:do not|don['’]t|did not|didn['’]t|cannot|can['’]t) (?:see|have|view) (?:the|an?|any"
    rf"|your) {_SEEN}\b"
    rf"|{_SEEN} (?:does not|doesn['’]t|did not|didn['’]t|(?:is|was) not|isn['’]t|wasn['’]t) (?:load"
    rf"|shown|provided"
    r"|available|attached|visible|displayed)"
    r"|\bno \w{1,16} (?:is|are|was|were|has been|have been) (?:attached|provided|uploaded|supplied)"
    rf"|\bno(?: such)? (?:{_SEEN}\b(?! of| that)|idea|clue|comment|answer|opinion|information|response|reply"
    rf"|one knows|way (?:to|of))"
    r"|\b(?:i|we) (?:can )?(?:see|find) no (?:graph|chart|plot|diagram)s?"
    r"|\b(?:do not|don['’]t) (?:know|understand)|(?:\bnot|n['’]t)(?: have)? (?:enough"
    r"|sufficient) (?:information|context|data)"
    r"|\bnot (?:answerable|applicable|available|able|clear|certain|sure)\b|\b(?:unsure|unclear|unknown"
    r"|unanswerable|rather not|too"
    r" (?:blurry|blurred|dark|small|far)|sorry"
    r"|apologi[sz]e"
    r"|as an ai(?!,? i can\b)|language model|(?:not have|without|no) (?:the )?access|(?:nobody|no one"
    r"|none of (?:us"
    r"|them)) (?:can|could|knows?)"
    r"|not any (?:image|picture|photo)s?)\b"
    r"|n['’]t (?:any (?:image|picture|photo)|have (?:the )?(?:access|ability))"
    r"|不知道|不清楚|不确定|不確定|无法|無法|没法|没办法|沒辦法|看不清|看不到图|(?:没有?|无|未提供|看不到|未收到)(?:看到)?(?:图片|图像|照片)"
    r"(?![中里上内])|图片(?:未|没有?(?:提供|上传|显示))|抱歉|对不起|难以|分からない|わかりません|모르겠"
)
# "please upload the image": who has nothing to look at
_REQUEST = any_case(
    rf"\b(?:please|could you|can you)(?: \w{{1,12}})? (?:upload|provide|share|send|attach|supply)\b"
    rf"|请(?:您|你)?(?:先)?(?:上传|提供|发送)"
    rf"|\b(?:upload|provide|attach|share|send me) (?:the|an?|your|it)\b[^.!?\n]{{0,20}}{_SEEN}\b"
)
# "I can't count the 7 people": a refusal with all that it says
_REFUSING = any_case(
    rf"(?:{_REFUSED.pattern})(?:(?!\b(?:but|however|yet|still|though"
    rf"|(?<!whether )(?<!if )(?<!that )there (?:are"
    rf"|is)|i (?:count|see|find)"
    r"|answer)\b|但|不过|有)[^.!?。！？\n]|\.(?=\d))*"
)
# "Is it 4.5?": one sentence with the marks that end it
_SENTENCE = re.compile(r"(?:[^.!?。！？\n]|\.(?!\s|\Z))*[.!?。！？\n]*")
# "If there were 7, I would say 7.": what would be said, or is not believed
_HYPOTHETICAL = any_case(
    r"如果[^。！？\n]{1,60}那么|\blet(?:['’]s| me| us) (?:assume|suppose|imagine|think about|consider|look at"
    r"|examine"
    r"|evaluate)\b[^:!?\n]*\Z"
    r"|\bhad (?:it|he|she|they|we|i|there|the \w{1,16}) (?:not )?been\b|\bif\b[^.!?\n]{1,40}\b(?:were"
    r"|had been|weren['’]t)\b[^.!?\n]{0,80}|\b(?:if|suppos(?:e|ing)"
    r"|assuming) (?!we\b|you\b|i\b)[^.!?\n]{0,80}\b(?:would|the answer is (?:yes|no)"
    r"|then,? (?:yes|no))\b|\A\W{0,4}suppose\b|\b(?:i|it|there|answer) would\b[^.!?\n]{0,60}\b(?:if|unless)\b"
    r"|\bi (?:wish|deny|disagree|dispute|doubt)\b|\bit (?:is|would be|was) wrong to\b"
)
# "The user said that there are 7, ": what others say, up to a "but"
HEARSAY = any_case(
    r"\b(?:according to (?:the )?(?:user|you|them|others|some)\b|previous answer (?:is|was)"
    r"|(?:caption|label|friend) claims|(?:user|you|they|people|friend|others|some|someone"
    r"|somebody|many|everyone|everybody|he|she)\b (?:\w{1,8} )?"
    r"(?:asks?|asked|says?|said|claim(?:s|ed)?|thinks?|thought|believed?|suggest(?:s|ed)?|told me|choose"
    r"|pick|answer)\b|\bwhether\b|(?:有人|用户|别人|他们?|她|网友|题目)(?:说|认为|觉得)|据说"
    r"|\b(?!(?:i|we)\b)\w{2,14} (?:answered|thinks|believes|claim(?:s|ed)|suspects?|insist(?:s|ed)?"
    r"|argue[sd]?|guess(?:es|ed))\b)"
    r"(?:(?!\b(?:but|however)\b|但|不过|其实)[^.;!?。；！？\n]|\.(?=\d)){0,200}"
)
# "Is it B? ": also "是B吗", "B还是C"
_ASKS = re.compile(
    r"\b(?:perhaps|maybe|possibly) not\b[\s.]{0,4}\Z|[?？][\s*_\"'”)]{0,4}\Z|吗[。\s]{0,4}\Z"
    r"|还是[^，,]{1,12}\Z"
)
# What takes a value out: English, Spanish, French, German, Chinese.
NEGATION = (
    r"\b(?:(?:but )?not|unable to|under no circumstances|by no means|nobody would(?: say)?|never|nor"
    r"|neither|cannot|can['’]t|unlike|outside(?: of)?|besides"
    r"|(?:aside|apart) from"
    r"|except(?: for)?|without|anything but|(?:all|every\w{3,5}|nowhere|any\w{0,5})(?: \w{2,8}){0,2} but"
    r"|other than|different from|instead of|rather than|avoid|exclud(?:e|es|ed|ing)|reject(?:s|ed|ing)?"
    r"|rul(?:e|es|ed|ing) out|eliminat(?:e|es|ed|ing)|(?<!no )(?<!a )(?<!any )doubt|refuse to"
    r"|(?:the )?opposite of|hardly|scarcely"
    r"|far from|nothing (?:near|like|close to)|nowhere near"
    r"|no (?:es|son|está|están|hay|hagas)"
    r"|non (?:è|sono)|não (?:é|são|há|está)|(?:ne \w{1,14} )?pas|nicht|kein(?:e[nmrs]?)?)\b"
    r"|\w{2,8}n['’]t\b|≠|!=|\\neq?\b|\\not ?=|不是|不等于|并非|不选|不能选|不(?:应该?|会|该|可以?)选|不要|别"
    r"|除了|除(?!以外|非)|没有|排除|而不是|(?<!除)非"
)
# "It is not ": right before a value
NEGATED = any_case(
    rf"(?:{NEGATION})"
    r"[\s,:*_\"'“「(\[$]{0,4}(?:(?:be|to|the|an?|exactly|just|only|equal|option|answer|choice|number|quite"
    r"|really"
    r"|definitely|choose|pick|select|it(?:['’]s)?|say|think|believe|there(?: is| are)?|that|is|going"
    r"|want|need|have|from|between|at|in|la|el|los|las|una?|opción|respuesta|clic|sur|bei|en|le|les|die"
    r"|der|das"
    r")\b[\s*\"'(]{0,3}){0,4}\Z"
)
# " is wrong": right behind a value
REJECTED = any_case(
    r"[\s*_\"')\]]{0,4}(?:, which |,? but (?:that|this|it) )?(?:(?:is|are|was|were|seems?|looks?|appears?"
    r"|would be)(?:n['’]t\b"
    r"| (?:both |all |clearly |obviously |definitely )?(?:not\b|(?:the |an? )?"
    r"(?:wrong|incorrect|false|mistake|impossible|invalid|guess|out of the question)\b))"
    r"|can(?:not|['’]t| not) be\b|(?:does|do)(?:n['’]t| not) (?:contain|show|hold|cover|match|fit|work)\b"
    r"|不对|不正确|是?错|ではありません|ではない|じゃない|(?:이|가) 아닙니다|no es\b)"
)
# "It does not happen ": somewhere before a value in its clause
_DENIED_CLAUSE = any_case(
    r"(?:\b(?:not|never|neither|cannot|nothing|nobody|no (?:such|event|moment|action|scene))\b"
    r"|n['’]t\b|不|没|并非)(?:(?!\b(?:but|only|before|until|rather)\b|而是)[^,;:.!?，。；：\n]){0,48}\Z"
)


_WRONG = r"(?:wrong|incorrect|false|untrue|a mistake|not (?:true|right|correct|the case))"
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
    r" (?:\w{2,8} )?(?:think|believe|say|claim|confirm|know|agree|assume|verify|guarantee)\b"
    r"|不可能是|我?(?:并?不)(?:认为|觉得|相信|同意|确定|敢说)|我(?:很|有点)?怀疑|(?:不能|无法)(?:确认|确定)|没有?人会说"
    r"|(?:错误|不正确的?)(?:的)?答案[:：]|(?:假设|假如|倘若|(?:可能|也许|或许)(?!是?\d))"
    r"|\b(?:not sure|unsure|uncertain) (?:that|if|whether)\b|\bwho knows\b|\bno idea (?:if|whether)\b"
    r"|\bthere(?: is|['’]s) (?:a|some) (?:\w{2,10} )?(?:chance|possibility)\b"
    r"|\b(?:refuse|unable|not able|impossible) to (?:say|confirm|claim|state|verify|tell)\b"
    r"|(?:(?<=[.!?;\n] )|(?<=\n)|\A)[*_>\"( -]{0,4}(?:(?:let['’]s )?(?:suppose|imagine|pretend|assum(?:e"
    r"|ing))\b"
    r"|(?:perhaps|maybe|possibly|conceivably|allegedly|supposedly),? (?!\d)"
    r"|(?:it (?:looks|seems) (?:like|that) )?(?:it|there|that|this|he|she|we|(?:the"
    r"|an?) \w{1,16}(?: \w{1,16})?) (?:might|may|could)"
    r"(?: \w{2,10})? be\b"
    rf"|{_WRONG}(?: (?:answer|option|choice|value)s?)?\s?[:：]))" + _REST
)
# "There are 5. Just kidding.": a sentence, and words behind it that take it back
_RETRACTED = any_case(
    r"说[^。！？\n]{1,60}是(?:不对|错误?)的|(?:(?<=[!?。！？\n])|(?<=\.\s)|\A)(?:[^.!?。！？\n]"
    r"|\.(?=\d))*[\s,.;:!?…。，；！–—-]{1,6}(?:(?:just )?kidding"
    r"|(?:开玩笑的?|我收回|不对|这(?:是错误?的|不对)|才怪)(?=\W*(?:\Z|\n))"
    r"|i take (?:that|it) back"
    r"|or (?:maybe )?not(?=\W*(?:\Z|\n))"
    rf"|(?:actually|wait),? no(?=\W*(?:\Z|\n))|(?:no,? |but )?(?:that|which|this)(?: is| was"
    rf"|['’]s) {_WRONG}(?! to\b)"
    r"|(?<=[.…] )not(?=\W*\Z)|(?<=\.\.)\.? ?not(?=\W*\Z)|(?<=[–—-] )(?:wrong|incorrect|false)(?=\W*(?:\Z"
    r"|\n)))"
)


def is_denied(text: str, start: int) -> bool:
    """Whether the clause in which a value starts there denies it: "it does not happen from 3 to 5"."""
    before = text[max(0, start - 64) : start]
    return (NEGATED.search(before) or _DENIED_CLAUSE.search(before)) is not None


def without_questions(text: str) -> str:
    """The text without the sentences that ask or suppose and what others say; empty if nothing is left."""
    sentences = (part for part in _SENTENCE.findall(text) if not _ASKS.search(part[-40:]))
    return HEARSAY.sub(" ", "".join(part for part in sentences if not _HYPOTHETICAL.search(part))).strip()


def without_refusals(text: str) -> str:
    """The text without what a refusal says up to its end, or to a "but"."""
    return _REFUSING.sub(" ", text)


def asserted(text: str, refusals: bool = False) -> str:
    """The text without what it asks, supposes, heard from others or (unless these are kept) refuses.

    Of a long text the last `MAX_PROSE` characters are looked at.
    """
    end = without_questions(text[-MAX_PROSE:])
    if not refusals:
        end = without_refusals(_EMBEDDED.sub(" ", _RETRACTED.sub(" ", end)))
    return text[:-MAX_PROSE] + end


def stated(text: str, read: Callable[[str], T | None], refusals: bool = False) -> T | None:
    """What `read` finds in what a text asserts: behind the last thing that it takes back, else in all of it.

    `read` gives None where it finds nothing.
    """
    values = (read(asserted(part, refusals)) for part in taken_back(text))
    return next((value for value in values if value is not None), None)


def requests_input(text: str) -> bool:
    """Whether a text asks for what it is to be about."""
    return _REQUEST.search(text) is not None


def refuses(text: str) -> bool:
    """Whether a text says that its writer cannot, or will not, answer."""
    return _REFUSED.search(text) is not None


def is_unsure(text: str) -> bool:
    """Whether a text does not commit itself, or refuses."""
    return UNSURE.search(text) is not None or refuses(text)
