"""Backend expressions: what parses to what, what is refused where, and the way there and back."""

import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpccomm.errors import ExpressionError
from hpccomm.expression import MAX_DEPTH, Expression, load, parse


def tree(name, *arguments, **options):
    """Write an Expression briefly; strings among the arguments are bare words."""
    nodes = tuple(Expression(part) if isinstance(part, str) else part for part in arguments)
    return Expression(name, nodes, tuple(options.items()))


GOOD = {
    "mpi4py": tree("mpi4py"),
    "mpi4py()": tree("mpi4py"),
    "gloo(threads=2)": tree("gloo", threads=2),
    "failover(hierarchical(nccl, mpi4py, wire=bfloat16), gloo)": tree(
        "failover", tree("hierarchical", "nccl", "mpi4py", wire="bfloat16"), "gloo"
    ),
    "faulty(mpi4py, wrong, rank=1, call=3)": tree("faulty", "mpi4py", "wrong", rank=1, call=3),
    "hierarchical(shm, hierarchical(mpi4py, gloo, by=switch))": tree(
        "hierarchical", "shm", tree("hierarchical", "mpi4py", "gloo", by="switch")
    ),
    "hierarchical(a,b,by=8)": tree("hierarchical", "a", "b", by=8),
    "checked(failover(a, b))": tree("checked", tree("failover", "a", "b")),
    "faulty(checked(failover(a)), hang)": tree("faulty", tree("checked", tree("failover", "a")), "hang"),
    "failover": tree("failover"),
    "checked(ring(a), failover(b))": tree("checked", tree("ring", "a"), tree("failover", "b")),
    "true(by=failover)": tree("true", by="failover"),
    "\n a (\t b ,\n c = 1 ) \n": tree("a", "b", c=1),
    "a(  # one, (\n  b  # two)\n)": tree("a", "b"),
    "a(\u00a0b)": tree("a", "b"),
    "a(x=true, y=false, z=True)": tree("a", x=True, y=False, z="True"),
    "a(x=-3, y=+3, z=007)": tree("a", x=-3, y=3, z=7),
    "a(x=1.5, y=1e3, z=-.5, w=2.)": tree("a", x=1.5, y=1000.0, z=-0.5, w=2.0),
    "a(x=4MiB, y=cuda:0, z=10.0.0.0/8, w=/tmp/f.py)": tree("a", x="4MiB", y="cuda:0", z="10.0.0.0/8", w="/tmp/f.py"),
    "a(x=inf, y=nan, z=1_000, w=-)": tree("a", x="inf", y="nan", z="1_000", w="-"),
    r'a(x="1", y="b, c)", z="\"\\\n\u00e9", w="")': tree("a", x="1", y="b, c)", z='"\\\n\u00e9', w=""),
    'a(x="word", y="# no comment")': tree("a", x="word", y="# no comment"),
}


@pytest.mark.parametrize("text", GOOD)
def test_a_good_text_gives_its_tree(text):
    assert repr(parse(text)) == repr(GOOD[text])
    assert load(text) == GOOD[text]


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("a( b,c ,d=1)", "a(b, c, d=1)"),
        ("a()", "a"),
        ('a(x="word", y="7", z="true")', 'a(x=word, y="7", z="true")'),
        ('a(x="1e5", y="+.5", z="4M b")', 'a(x="1e5", y="+.5", z="4M b")'),
        ("a(x=1e3, y=1e-7, z=1e16, w=010)", "a(x=1000.0, y=1e-07, z=1e+16, w=10)"),
        ("a(b(c(d)),\n# note\ne=true)", "a(b(c(d)), e=true)"),
        ('a(x="\u00e9\u2028")', r'a(x="\u00e9\u2028")'),
    ],
)
def test_the_printed_form_is_canonical(text, canonical):
    assert str(parse(text)) == canonical
    assert str(parse(canonical)) == canonical


BAD = [
    ("", 1, "no expression", "unset"),
    (" \n ", 1, "no expression", "unset"),
    ("9a", 1, "'9a' where a backend is expected", "write it like"),
    ("(a)", 1, "'(' where a backend is expected", "write it like"),
    ("@file", 1, "'@' where", "write it like"),
    ("failover(hierarchical(nccl", 27, "the text ends where ',' or ')'", "sbatch --export"),
    ("failover(nccl, ", 15, "the text ends where a backend", "sbatch --export"),
    ("a(", 3, "the text ends", "srun --export"),
    ("a(b=", 5, "the text ends where a value for the option 'b'", "job script"),
    ('a(b="x, c)', 5, "without its closing double quote", "close"),
    ("a(x,)", 5, "')' where a backend", "write it like"),
    ("a(,x)", 3, "',' where a backend", "write it like"),
    ("a(b c)", 5, "'c' where ',' or ')'", "write it like"),
    ("a(3)", 3, "'3' where a backend", "write it like"),
    ('a("x")', 3, "'\"' where a backend", "write it like"),
    ("a(b=1, b=2)", 8, "option 'b' given twice", "keep one"),
    ("a(b=1, c)", 8, "argument 'c' after an option", "last"),
    ("a(b==1)", 5, "'=' where a value for the option 'b'", "double quotes"),
    ("a(b='x')", 5, "where a value for the option 'b'", "double quotes"),
    ("a(b=c(d))", 6, "'(' where ',' or ')'", "write it like"),
    ("a(b=1e999)", 5, "not finite", "option 'b'"),
    ("a(b=-" + "9" * 350 + ")", 5, "not finite", "option 'b'"),
    ("a(b=" + "9" * 5000 + ")", 5, "not finite", "option 'b'"),
    (r'a(b="\ud800")', 5, "no valid Unicode", "option 'b'"),
    ('a(b="\udcff")', 5, "no valid Unicode", "option 'b'"),
    (r'a(b="\q")', 6, "wrong escape", "write"),
    ('a(b="x\ty")', 7, "control character", "write"),
    ("nccl, gloo", 5, "',' after the end", "failover(nccl, gloo)"),
    ("mpi4py gloo", 8, "'gloo' after the end", "one expression"),
    ("a())", 4, "')' after the end", "one expression"),
    ("cpu:gloo", 4, "':gloo' after the end", "one expression"),
    ("gr\u00f6\u00dfe", 3, "after the end", "one expression"),
    ("ring(failover(a, b))", 6, "failover inside ring", "outermost"),
    ("failover(failover(a), b)", 10, "failover inside failover", "outermost"),
    ("checked(ring(faulty(failover(a))))", 21, "failover inside ring", "outermost"),
    ("faulty(a, failover(checked(failover(b))))", 28, "failover inside failover", "outermost"),
    ("x(" * MAX_DEPTH + "x" + ")" * MAX_DEPTH, 2 * MAX_DEPTH + 1, "more than 50 levels", "less deeply"),
    ("x(" * 100_000, 2 * MAX_DEPTH + 1, "more than 50 levels", "less deeply"),
]


@pytest.mark.parametrize(("text", "position", "found", "remedy"), BAD, ids=[text[:40] for text, *_ in BAD])
def test_a_bad_text_is_refused_with_place_and_remedy(text, position, found, remedy):
    with pytest.raises(ExpressionError) as caught:
        parse(text, source="HPCCOMM_BACKEND")
    error = caught.value
    assert found in error.found
    assert f"at character {position}" in error.found
    assert remedy in error.remedy
    title, shown, caret = error.asked.split("\n")
    assert title == "parse the backend expression from HPCCOMM_BACKEND"
    window = max(0, position - 1 - 60)
    expected = "".join(c if c.isprintable() else " " for c in text.split("\n")[0][window : window + 100])
    assert shown == "    " + expected
    assert len(caret) == 4 + position - window
    assert caret.strip() == "^"


def test_in_many_lines_the_error_shows_and_counts_the_line():
    with pytest.raises(ExpressionError) as caught:
        parse("failover(\n  nccl(a=1),\n  gloo(b=, c=2)\n)")
    assert caught.value.asked.splitlines()[1:] == ["      gloo(b=, c=2)", "             ^"]
    assert "at character 10 of line 3" in caught.value.found


def test_the_deepest_allowed_expression_parses():
    text = "x(" * (MAX_DEPTH - 1) + "x" + ")" * (MAX_DEPTH - 1)
    assert parse(text).depth == MAX_DEPTH
    assert str(parse(text)) == text


@pytest.mark.parametrize(
    ("parts", "found"),
    [
        (("a b",), "the name 'a b'"),
        (("",), "the name ''"),
        (("a\n",), "the name"),
        (("\u00e9",), "the name"),
        (("a", (), (("b c", 1),)), "the name 'b c'"),
        (("a", (), (("b", 1), ("b", 2))), "given twice"),
        (("a", (), (("b", math.inf),)), "not finite"),
        (("a", (), (("b", math.nan),)), "not finite"),
        (("a", (), (("b", 10**400),)), "not finite"),
        (("a", (), (("b", "\udcff"),)), "Unicode"),
        (("a", (), (("b", None),)), "NoneType"),
        (("ring", (tree("checked", "failover"),)), "failover inside ring"),
        (("x", (parse("x(" * (MAX_DEPTH - 1) + "x" + ")" * (MAX_DEPTH - 1)),)), "levels"),
    ],
)
def test_an_expression_that_could_not_be_read_back_is_not_built(parts, found):
    with pytest.raises(ExpressionError) as caught:
        Expression(*parts)
    assert found in caught.value.found


names = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,8}", fullmatch=True) | st.sampled_from(["true", "inf", "e1", "None"])
plain_names = names.filter(lambda name: name != "failover")
NASTY = [*'()=#,"\\\n\r\t\x00\x7f\x85\u2028\ufeff\u0663\U0001f600', "", "a,b", "a)", "#x", "a b", "'", '\\"']
NASTY += ["true", "false", "0", "-0", "+1", "007", "1.", ".5", "1e5", "1_0", "inf", "nan", "-", "."]
strings = st.text() | st.sampled_from(NASTY) | st.lists(st.sampled_from(NASTY)).map("".join)
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.just(10**300)
options = st.lists(st.tuples(names, strings | numbers | st.booleans()), max_size=4, unique_by=lambda pair: pair[0])
inner = st.recursive(
    st.builds(Expression, plain_names, options=options.map(tuple)),
    lambda below: st.builds(Expression, plain_names, st.lists(below, max_size=3).map(tuple), options.map(tuple)),
    max_leaves=6,
)
failovers = st.lists(inner, max_size=3).map(lambda below: Expression("failover", tuple(below)))
wrapped = st.builds(Expression, st.sampled_from(["checked", "faulty"]), failovers.map(lambda node: (node,)))
expressions = inner | failovers | wrapped


@given(expressions)
def test_what_is_printed_reads_back_as_the_same(expression):
    text = str(expression)
    assert parse(text) == expression
    assert repr(parse(text)) == repr(expression)
    assert text.isascii()
    assert text.isprintable()


@given(expressions)
def test_expressions_are_values(expression):
    assert hash(parse(str(expression))) == hash(expression)
    assert pickle.loads(pickle.dumps(expression)) == expression
    with pytest.raises(AttributeError):
        expression.name = "other"


@given(expressions)
def test_paths_are_unique_and_lead_to_their_nodes(expression):
    nodes = dict(expression.walk())
    assert len(nodes) == len(list(expression.walk()))
    for path, found in nodes.items():
        node = expression
        for step in path.split("/")[1:]:
            node = node.arguments[int(step.partition(":")[0])]
        assert node is found


@given(st.text(alphabet='ab(),="\\ \n#1.') | st.text())
def test_any_text_parses_or_raises_the_one_error(text):
    try:
        expression = parse(text)
    except ExpressionError as error:
        assert pickle.loads(pickle.dumps(error)).found == error.found
    else:
        assert parse(str(expression)) == expression


def test_paths_name_index_and_backend():
    expression = parse("failover(hierarchical(nccl, mpi4py), gloo)")
    assert [path for path, _ in expression.walk()] == [
        "failover",
        "failover/0:hierarchical",
        "failover/0:hierarchical/0:nccl",
        "failover/0:hierarchical/1:mpi4py",
        "failover/1:gloo",
    ]


def test_keywords_are_a_read_only_mapping_in_the_order_written():
    keywords = parse("a(y=1, x=two)").keywords
    assert list(keywords.items()) == [("y", 1), ("x", "two")]
    with pytest.raises(TypeError):
        keywords["y"] = 2


def test_load_reads_a_file_with_comments(tmp_path):
    path = tmp_path / "backend.txt"
    path.write_text("\ufeff# for two nodes\nfailover(\n    nccl,  # fast\n    gloo\n)\n", encoding="utf-8")
    assert load(f" @{path}\n") == parse("failover(nccl, gloo)")


def test_load_finds_the_home_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "backend.txt").write_text("gloo")
    assert load("@~/backend.txt") == parse("gloo")


def test_a_bad_file_is_named_with_the_variable_and_the_line(tmp_path):
    path = tmp_path / "backend.txt"
    path.write_text("failover(\n    nccl gloo)\n")
    with pytest.raises(ExpressionError) as caught:
        load(f"@{path}", source="HPCCOMM_BACKEND")
    assert str(path) in caught.value.asked
    assert "HPCCOMM_BACKEND" in caught.value.asked
    assert "'gloo' where ',' or ')' is expected, at character 10 of line 2" in caught.value.found


@pytest.mark.parametrize("name", ["missing.txt", "", "latin1.txt", "a\0b"])
def test_a_file_that_cannot_be_read_is_named(name, tmp_path):
    (tmp_path / "latin1.txt").write_bytes(b"gl\xf6o")
    with pytest.raises(ExpressionError) as caught:
        load(f"@{tmp_path / name}", source="HPCCOMM_BACKEND")
    assert repr(str(tmp_path / name)) in caught.value.asked
    assert "HPCCOMM_BACKEND" in caught.value.asked
    assert "every rank" in caught.value.remedy
