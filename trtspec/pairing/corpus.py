"""Texts that bring out differences between tokenizers, by kind. Written for this purpose.

Each kind is one that a real pair of tokenizers differs on: runs of 32 and more spaces (a tokenizer rebuilt from a GGUF
has the same merges in another order, and splits 31+1 where the original splits 16+16), leading whitespace (dummy
prefixes), digit groups of one or three, composed and decomposed letters (NFC or none), line ends, scripts beyond Latin.
"""

from __future__ import annotations

from collections.abc import Mapping

_PROSE = (
    "The wombat's burrow, about 30 metres long, isn't shared: each animal digs its own.",
    "They'll say WE'VE seen it; I'd rather he's asked, and you're sure they'd agree!",
    "“Curly quotes” — and dashes – and an ellipsis… don’t forget ‘single’ ones.",
    "e-mail: someone@example.org, https://example.org/a/b?c=d&e=%20f#g  (see §3.2, p. 14–15)",
    "camelCase snake_case kebab-case SCREAMING_CASE iPhone15ProMax x86_64 C++ C# .NET",
)
_SCRIPTS = (
    "Съешь ещё этих мягких французских булок, да выпей чаю.",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία· τί ἐστιν;",
    "東京都の人口は約1400万人です。カタカナとひらがな、漢字。",
    "他们在北京大学学习计算机科学，价格是￥1,234.56元。繁體中文與簡體。",
    "대한민국의 수도는 서울입니다. 한글은 아름답다!",
    "ภาษาไทยไม่มีช่องว่างระหว่างคำ",
    "हिन्दी में यह एक वाक्य है। क्षत्रिय ज्ञान श्रृंखला",
    "বাংলা ভাষায় একটি বাক্য।",
    "தமிழ் மொழியில் ஒரு வாக்கியம்.",
    "ქართული ენა და დამწერლობა",
    "Հայերեն լեզու, հայոց այբուբեն։",
    "አማርኛ የኢትዮጵያ ቋንቋ ነው።",
    "ភាសាខ្មែរ ជាភាសាផ្លូវការ",
    "မြန်မာဘာသာစကား",
    "Tiếng Việt có nhiều dấu thanh: ở đâu đó, nghễnh ngãng.",
    "Zażółć gęślą jaźń. Příliš žluťoučký kůň. Årsmöte, straße, ıİ, ǅ ﬁ ﬂ",
)
_RIGHT_TO_LEFT = (
    "اللغة العربية تُكتب من اليمين إلى اليسار، ١٢٣٤٥.",
    "שָׁלוֹם עוֹלָם! זה משפט בעברית.",
    "فارسی را می‌نویسیم؛ نیم‌فاصله مهم است.",
    "mixed \u202bاردو 123\u202c and \u200fmarks\u200e",
)
_EMOJI = (
    "👩‍👩‍👧‍👦 family, 👩🏽‍🚀 astronaut, 🏳️‍🌈 flag, 🇦🇺🇯🇵 flags, 1️⃣ keycap",
    "😀😃😄😁😆😅🤣😂🙂🙃😉😊😇",
    "☃︎ ☃️ ❤ ❤️ ⌚️ ✔︎ ™ ™️",
    "🫠🫨🪿 new ones, 👍🏿👍🏻",
)
_FORMS = (
    "caf\u00e9 na\u00efve \u00c5ngstr\u00f6m \u1e9b\u0323",
    "cafe\u0301 nai\u0308ve A\u030angstro\u0308m \u017f\u0323\u0307",
    "\uac00\uac01 \u1100\u1161\u1100\u1161\u11a8",
    "ﬀ ① ½ ㎏ ℌ ﹏ Ａｂｃ１２３ ｶﾅ",
    "Z\u0351\u036b\u0343\u036a\u0302\u036b\u033d\u034fa\u0334\u0319\u0324l\u0323\u0348\u0353g\u0321\u031f\u033co!",
    "\u0301starts with a mark, q\u0307\u0323 and q\u0323\u0307 differ in order",
    "\u212b \u2126 \u1fef \u0344 \u0958 \u2adc",
)
_DIGITS = (
    "1 12 123 1234 12345 123456 1234567 12345678901234567890",
    "3.14159265358979 1,234,567.89 1e-10 0xDEADBEEF 0b1011 1_000_000 -42 +7",
    "2024-07-26T12:34:56.789Z 192.168.0.1 +61 2 9374 4000 007",
    "٠١٢٣٤٥ ०१२३४५ 一二三四五 Ⅷ ⅷ ² ₂ ¾",
    "a1b22c333d4444 v1.2.3-rc4 4x4x4 10th 1st 99.9%",
)
_CODE = (
    "def f(x):\n    if x:\n        return [y ** 2 for y in x if y % 2 == 0]\n    return None\n",
    "class A {\n\tint b = 0;\n\t\tfor (;;) { /* c */ }\n\t\t\treturn;\n}\n",
    "x = {\n" + " " * 32 + "'deep': [\n" + " " * 36 + "1,\n" + " " * 40 + "2,\n" + " " * 32 + "],\n}\n",
    "\n".join(" " * n + "indented by some" for n in (1, 2, 3, 4, 5, 7, 8, 12, 15, 16, 17, 20, 24, 31, 33, 47, 48)),
    "\n".join("\t" * n + "tabs" for n in (1, 2, 3, 4, 5, 8, 9, 16)),
    "SELECT a.*, COUNT(*) FROM t1 AS a LEFT JOIN t2 USING (id) WHERE a.x <> 'it''s' -- note\n;",
    "<div class=\"a\" data-x='1'><!-- c --><p>&nbsp;&lt;b&gt;</p></div>",
    '{"a": [1, 2.5, null, true], "b": {"c": "\\u00e9\\n\\t"}}',
    "for i in $(seq 1 10); do echo \"${i}\" | sed -e 's/[0-9]\\+/x/g' >> out.txt 2>&1; done",
    "\\begin{align}\n  \\frac{\\partial f}{\\partial x} &= \\sum_{i=0}^{\\infty} x_i^2 \\\\\n\\end{align}",
    "#include <vector>\r\nint main(){std::vector<int>v{1,2};return v[0]!=v.size()&&!true;}\r\n",
    "    " * 16 + "return  # " + "-" * 60 + "\n" + "=" * 80 + "\n" + "#" * 33 + "\n" + "/" * 17 + "\n",
)
_SPACES = (
    *(" " * n for n in (0, 1, 2, 3, 15, 16, 31, 32, 33, 63, 64, 100)),
    *(
        "\t",
        "\t\t",
        "\t" * 32,
        "\n",
        "\n\n",
        "\n\n\n\n",
        "\r",
        "\r\n",
        "\r\n\r\n",
        "\n \n  \n   \n",
        " \t \t ",
        "\x0b\x0c",
    ),
    *(" leading", "  leading", "   leading", "trailing ", "trailing  ", "two  spaces   three", "a\tb\t\tc"),
    "\nleading line",
    "line one\r\nline two\r\n\r\nline four\rold mac",
    "unix\n\nblank\n\n\nlines\n",
    "no\u00a0break \u2003em\u3000wide\u200bzero",
    "\u2028line\u2029paragraph\u0085next",
    "a" + " " * 40 + "b" + " " * 32 + "c\n" + " " * 50 + "d",
)
_LONG = (
    "a" * 400,
    "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft",
    "ATGCGATTACAGGCTA" * 40,
    "supercalifragilisticexpialidocious" * 8,
    "あ" * 150,
    "ab1" * 120,
    "https://example.org/" + "very-long-path/" * 24 + "?q=" + "%F0%9F%98%80" * 16,
    "9" * 250,
    "!?" * 120,
    "aGVsbG8gd29ybGQgYmFzZTY0" * 12 + "==",
)
_SPECIAL_TEXT = (
    "<s> </s> <unk> <pad> <bos> <eos> [INST] [/INST] <<SYS>> <</SYS>>",
    "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>",
    "<|im_start|>user\nhi<|im_end|>\n<|endoftext|>",
    "<start_of_turn>user\nhi<end_of_turn>\n<|user|> <|assistant|> <|end|>",
    "a<s>b</s>c <s>d </s> e  <|im_end|>  f<|eot_id|>\n\ng <unk>h",
    "<think>\nhm\n</think>\n\n<tool_call>{}</tool_call> <|python_tag|> <|fim_prefix|>",
    "< |im_end| > <|IM_END|> <|im_end| |im_end|> <0x41><0x0A> ▁ ▁▁ Ġ Ċ ##ing </w>",
)
_ODD = (
    "\x00\x01\x02\x1b[31m\x7f",
    "\ufeffmark first \ufffd replaced \ufffe\uffff",
    "\U0001d54a\U0001d560\U0001d55e\U0001d556 math, \U00020000\U0002a6d6 rare han, \U000e0041 tag, \U0010ffff last",
    "\u00ad soft\u00adhyphen \u2060joiner\u2061 \ue000 private \u0378 unassigned",
    "🜁 ꙮ ﷽ 𒐫 ⸻ ㅤ",
    "¬¦±×÷°€£¥¢©®¶•←→⇒∀∃∈≤≥≠∞√∫",
)
CORPUS: Mapping[str, tuple[str, ...]] = {
    "prose": _PROSE, "scripts": _SCRIPTS, "right to left": _RIGHT_TO_LEFT, "emoji": _EMOJI, "Unicode forms": _FORMS,
    "digits": _DIGITS, "code": _CODE, "whitespace": _SPACES, "long words": _LONG, "special-token text": _SPECIAL_TEXT,
    "odd characters": _ODD,
}  # fmt: skip
"""Kind → texts."""
SIZE = sum(map(len, CORPUS.values()))
"""Texts in all."""
