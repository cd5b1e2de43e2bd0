"""Words of who will not or cannot answer, and of who denies a value: before it, behind it, in its clause."""

from swift_grpo_ext.rewards.reading.statement import UNSURE
from swift_grpo_ext.rewards.reading.words import any_case

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
    r"|\bi (?:will not|won['’]t|(?:do not|don['’]t) (?:want|wish|feel like|care|plan|intend|like))\b"
    r"|\bnothing to (?:add|say|report|tell|answer|declare|hide)|\bthere(?:['’]s| is) no (?:telling"
    r"|knowing|saying)\b"
    rf"|{_I_CANNOT}(?!see|find|spot|detect|locate|identify|notice|discern|observe|be\b|but\b|help but"
    rf"|only|think of|imagine)"
    r"[a-z]{3}"
    rf"|\b(?:do not|don['’]t|did not|didn['’]t|cannot|can['’]t) (?:see|have|view) (?:the|an?|any"
    rf"|your) {_SEEN}\b"
    rf"|{_SEEN} (?:does not|doesn['’]t|did not|didn['’]t|(?:is|was) not|isn['’]t|wasn['’]t) (?:load"
    rf"|shown|provided"
    r"|available|attached|visible|displayed)"
    r"|\bno \w{1,16} (?:is|are|was|were|has been|have been) (?:attached|provided|uploaded|supplied)"
    rf"|\bno(?: such)? (?:{_SEEN}\b(?! of| that)|(?:chart|graph|plot|table) (?:visible|shown|given)|idea"
    rf"|clue"
    rf"|comment|answer|opinion|data\b|information"
    rf"|response|reply"
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
    r"|answer)\b|[.!?]\s{1,4}[a-z_]{2,16}\(|但|不过|有)[^\n])*"
)
# What takes a value out: English, Spanish, French, German, Chinese.
NEGATION = (
    r"\b(?:(?:but )?not|unable to|under no circumstances|by no means|nobody would(?: say)?|never|nor"
    r"|neither|cannot|can['’]t|unlike|outside(?: of)?|besides"
    r"|(?:aside|apart) from"
    r"|except(?: for)?|without(?! (?:a |any )?doubt)|anything but|(?:all|every\w{3,5}|nowhere"
    r"|any\w{0,5})(?: \w{2,8}){0,2} but"
    r"|other than|different from|instead of|rather than|avoid|exclud(?:e|es|ed|ing)|reject(?:s|ed|ing)?"
    r"|rul(?:e|es|ed|ing) out|retract|withdraw|discard|disregard|dismiss|cross(?:es|ed|ing)? out|strik(?:e"
    r"|es|ing) out|forbidden to|not allowed to|prohibited from|refrain from|(?:vote|argue|decide"
    r"|advise) against|skip|steer clear of|(?:stay"
    r"|keep) away from|eliminat(?:e|es|ed|ing)"
    r"|(?<!no )(?<!a )(?<!any )doubt"
    r"|refuse to"
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
    r"|want|need|have|write|from|between|at|in|la|el|los|las|una?|opción|respuesta|clic|sur|bei|en|le|les"
    r"|die"
    r"|der|das"
    r")\b[\s*\"'($]{0,3}){0,4}\Z"
)
# " is wrong": right behind a value
REJECTED = any_case(
    r"[\s*_\"'$})\]]{0,4}(?:, which |,? but (?:that|this|it) )?(?:(?:is|are|was|were|seems?|looks?|appears?"
    r"|would be)(?:n['’]t\b"
    r"| (?:both |all |clearly |obviously |definitely )?(?:not\b|(?:the |an? )?"
    r"(?:wrong|incorrect|false|mistake|impossible|invalid|guess|out of the question|silly|a lie|nonsense"
    r"|absurd|empty|worst|least|too (?:many|few|much|high|low))\b))"
    r"|can(?:not|['’]t| not) be\b|(?:ha(?:s|ve) to|must|should|can|could) be (?:excluded|rejected|ruled out"
    r"|dismissed"
    r"|discarded|eliminated|wrong)\b|(?:does|do)(?:n['’]t| not) (?:contain|show|hold|cover|match|fit"
    r"|work)\b|(?:contains?|shows?|holds?) (?:no|nothing)\b"
    r"|不对|不正确|是?错|ではありません|ではない|じゃない|(?:이|가) 아닙니다|no es\b)"
)
# "It does not happen ": somewhere before a value in its clause
_DENIED_CLAUSE = any_case(
    r"(?:\b(?:not|never|neither|cannot|nothing|nobody|no (?:such|event|moment|action|scene))\b"
    r"|n['’]t\b|不|没|并非)(?:(?!\b(?:but|only|before|until|rather)\b|而是)[^,;:.!?，。；：\n]){0,48}\Z"
)


def is_denied(text: str, start: int) -> bool:
    """Whether the clause in which a value starts there denies it: "it does not happen from 3 to 5"."""
    before = text[max(0, start - 64) : start]
    return (NEGATED.search(before) or _DENIED_CLAUSE.search(before)) is not None


def without_refusals(text: str) -> str:
    """The text without what a refusal says up to its end, or to a "but"."""
    return _REFUSING.sub(" ", text)


def requests_input(text: str) -> bool:
    """Whether a text asks for what it is to be about."""
    return _REQUEST.search(text) is not None


def refuses(text: str) -> bool:
    """Whether a text says that its writer cannot, or will not, answer."""
    return _REFUSED.search(text) is not None


def is_unsure(text: str) -> bool:
    """Whether a text does not commit itself, or refuses."""
    return UNSURE.search(text) is not None or refuses(text)
