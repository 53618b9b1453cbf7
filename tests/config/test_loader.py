from __future__ import annotations

from pathlib import Path

import pytest

from psopt.config import ConfigError, Problem, load_job
from psopt.config.loader import MOST_BYTES
from tests.config.support import MINIMAL, Bench, Job, Wasp

ALL_WRONG = """\
name: my job
seed: 1.5
model: {nmae: lenet5}
scheme: {name: wasp, perod: 4, weights: [1, x]}
optimizer:
  name: AdamW
  lerning_rate: 1e-3
  betas: [0.9, yes]
stop: {seconds: 1:30}
epochs: 3
cluster:
  workers: yes
name: again
train: {clip_norm: !foo -1}
"""


def test_minimal_job_gets_defaults(bench: Bench) -> None:
    job = bench.load()
    assert (job.name, job.seed, job.on_bad_update) == ("digits", 1, "abort")
    assert job.scheme == Wasp()
    assert job.scheduler is None
    assert (job.data.path, job.data.cache_bytes) == ("sample", 2 * 2**30)
    assert (job.loss.name, job.loss.factory) == ("cross_entropy", None)
    assert (job.evaluate.every_epochs, job.evaluate.every_steps) == (1.0, None)
    assert (job.cluster.workers, job.cluster.compute.mean) == (2, 0.05)


def test_job_is_frozen(bench: Bench) -> None:
    job = bench.load()
    for section, key in ((job, "seed"), (job.train, "epochs"), (job.scheme, "period")):
        with pytest.raises(Exception, match=r"frozen|cannot assign"):
            setattr(section, key, 2)


@pytest.mark.parametrize("written", ["1e-3", "0.001", "1.0e-3", "1E-3"])
def test_float_without_a_point(bench: Bench, written: str) -> None:
    lr = bench.load(MINIMAL.replace("0.1", written)).optimizer.lr
    assert lr == 0.001
    assert type(lr) is float


def test_whole_number_for_a_float(bench: Bench) -> None:
    lr = bench.load(MINIMAL.replace("0.1", "1")).optimizer.lr
    assert lr == 1.0
    assert type(lr) is float


@pytest.mark.parametrize(
    "written",
    [
        "no",
        "yes",
        "on",
        "off",
        "true",
        "False",
        "123",
        "0123",
        "1e-3",
        "1.10",
        "0x1F",
        "12e4567",
        "24",
        "1_000",
        "2024-01-01",
        "y",
        "N",
        "0o7",
    ],
)
def test_text_stays_as_written(bench: Bench, written: str) -> None:
    assert bench.load(MINIMAL.replace("digits", written)).name == written
    assert bench.load(MINIMAL.replace("digits", f"'{written}'")).name == written
    job = bench.load(MINIMAL.replace("{name: wasp}", f"{{name: wasp, label: {written}}}"))
    assert job.scheme.label == written


def test_null_is_no_text(bench: Bench) -> None:
    for written in ("null", "~", ""):
        assert "name: must be text, not" in bench.error(MINIMAL.replace("digits", written))
    assert (
        bench.load(MINIMAL.replace("{name: wasp}", "{name: wasp, label: ~}")).scheme.label is None
    )
    assert bench.load(MINIMAL.replace("digits", "'null'")).name == "null"


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("yes", "the text 'yes'"),
        ("'2'", "the text '2'"),
        ("2.0", "2.0"),
        ("2e0", "2e0"),
        ("true", "true"),
        ("null", "null"),
        ("", "null"),
        ("[2]", "a list"),
        ("{a: 2}", "a mapping"),
        ("9" * 500, "9" * 60),
        (".inf", ".inf"),
        ("1_000", "the text '1_000'"),
        ("24:00:00", "the text '24:00:00'"),
    ],
)
def test_not_a_whole_number(bench: Bench, written: str, shown: str) -> None:
    line = bench.error(MINIMAL + f"cluster: {{workers: {written}}}\n")
    assert (
        line
        == f"5:{19 if not written else 20}: cluster.workers: must be a whole number, not {shown}"
    )


@pytest.mark.parametrize(
    "written", ["true", "'0.1'", ".inf", ".nan", "-.inf", "0", "-1", "1e999", "~"]
)
def test_not_a_learning_rate(bench: Bench, written: str) -> None:
    line = bench.error(MINIMAL.replace("0.1", written))
    assert line.startswith("4:28: optimizer.lr: must be ")


@pytest.mark.parametrize("written", ["yes", "on", "1", "'true'", "0"])
def test_not_a_truth_value(bench: Bench, written: str) -> None:
    line = bench.error(MINIMAL + f"data: {{normalise: {written}}}\n")
    assert line.startswith("5:19: data.normalise: must be true or false, not ")


def test_duplicate_key_names_both_lines(bench: Bench) -> None:
    line = bench.error(MINIMAL + "name: other\n")
    assert line == "5:1: duplicate key 'name': on line 1 and on line 5"


def test_all_errors_at_once(bench: Bench) -> None:
    assert bench.errors(ALL_WRONG) == [
        "1:7: name: 'my job' is not a job name: use 1 to 64 letters, digits, '.', '_', '+' "
        "and '-', beginning with a letter or a digit",
        "2:7: seed: must be a whole number, not 1.5",
        "3:8: model: give exactly one of 'name' (a model of the zoo) and 'factory'",
        "3:9: model: unknown key 'nmae'; did you mean 'name'?",
        "4:22: scheme: unknown key 'perod'; did you mean 'period'?",
        "4:45: scheme.weights[1]: must be a number, not the text 'x'",
        "6:3: optimizer: required key 'lr' is missing",
        "7:3: optimizer: unknown key 'lerning_rate'; did you mean 'lr'?",
        "8:10: optimizer.betas: item 2 must be a number, not the text 'yes'",
        "9:17: stop.seconds: '1:30' is ambiguous (minutes or hours?): write \"HH:MM:SS\"",
        "10:1: unknown key 'epochs'; did you mean 'train.epochs'?",
        "12:12: cluster.workers: must be a whole number, not the text 'yes'",
        "13:1: duplicate key 'name': on line 1 and on line 13",
        "14:20: the tag '!foo' is refused: remove it (quote what is text)",
        "14:20: train.clip_norm: must be greater than 0, not -1",
    ]


def test_every_line_names_the_file(bench: Bench) -> None:
    with pytest.raises(ConfigError) as caught:
        bench.load(ALL_WRONG)
    assert all(line.startswith(f"{bench.path}:") for line in str(caught.value).split("\n"))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (MINIMAL + "sede: 1\n", "5:1: unknown key 'sede'; did you mean 'seed'?"),
        (MINIMAL + "Seed: 1\n", "5:1: unknown key 'Seed'; did you mean 'seed'?"),
        (
            MINIMAL + "batch_size: 1\n",
            "5:1: unknown key 'batch_size'; did you mean 'train.batch_size' or",
        ),
        (
            MINIMAL + "lr_scheduler: {}\n",
            "5:1: unknown key 'lr_scheduler'; did you mean 'scheduler'?",
        ),
        (
            MINIMAL + "xyzzy: 1\n",
            "5:1: unknown key 'xyzzy'; valid: name, seed, model, data, scheme,",
        ),
        (
            MINIMAL + "train: {workers: 3}\n",
            "5:9: train: unknown key 'workers'; did you mean 'cluster.w",
        ),
        (
            MINIMAL + "train: {seed: 3}\n",
            "5:9: train: unknown key 'seed'; did you mean 'seed' at the top level or",
        ),
        (MINIMAL + "1: 1\n", "5:1: unknown key '1'; valid: name"),
        (MINIMAL + "? ''\n: 1\n", "5:3: unknown key ''; valid: name"),
        (MINIMAL + "~: 1\n", "5:1: unknown key '~'; valid: name"),
        (MINIMAL + '"a\\nb": 1\n', r"5:1: unknown key 'a\nb'; valid: name"),
        (
            MINIMAL + "cluster:\n  compute: {men: 1}\n",
            "6:13: cluster.compute: unknown key 'men'; did you mean 'mean'?",
        ),
        (
            MINIMAL.replace("wasp}", "wasp, slices: 2}"),
            "3:22: scheme: unknown key 'slices'; valid: name, period, weights, label, bound",
        ),
        (
            MINIMAL.replace("wasp", "wsap"),
            "3:16: scheme.name: unknown scheme 'wsap'; did you mean 'wasp'?",
        ),
        (
            MINIMAL.replace("wasp", "xyz"),
            "3:16: scheme.name: unknown scheme 'xyz'; valid: wasp, bsp",
        ),
        (MINIMAL.replace("wasp", "7"), "3:16: scheme.name: unknown scheme '7'; valid: wasp, bsp"),
        (MINIMAL.replace("name: wasp", ""), "3:9: scheme: required key 'name' is missing"),
        (
            MINIMAL.replace("{name: wasp}", "wasp"),
            "3:9: scheme: must be a mapping of keys, not the text",
        ),
        (MINIMAL.replace("{name: wasp}", ""), "3:8: scheme: must be a mapping of keys, not null"),
        (
            MINIMAL.replace("lenet5", "lenet"),
            "2:15: model.name: must be one of 'linear', 'softmax', 'logistic', 'mlp', 'lenet5', "
            "'resnet18' or 'resnet101', not the text 'lenet'; did you mean 'lenet5'?",
        ),
        (
            MINIMAL + "data:\n",
            "5:6: data: must be a mapping of keys, not null; leave the key out",
        ),
        (MINIMAL + "data: []\n", "5:7: data: must be a mapping of keys, not a list"),
        (
            MINIMAL + "evaluate: {every_epochs: 1, every_steps: 5}\n",
            "5:11: evaluate: give 'every_epochs' or 'every_steps', not both",
        ),
        (MINIMAL + "loss: {l2: -1}\n", "5:12: loss.l2: must be at least 0, not -1"),
        (MINIMAL + "loss: {l2: .inf}\n", "5:12: loss.l2: must be a finite number, not .inf"),
        (
            MINIMAL.replace("lenet5", "lenet5, dtype: float16"),
            "2:30: model.dtype: must be one of 'float32' or 'float64', not the text 'float16'; "
            "did you mean 'float64'?",
        ),
        (
            MINIMAL + "data: {classes: [4]}\n",
            "5:17: data.classes: there must be at least two classes, not 1",
        ),
        (
            MINIMAL + "data: {classes: [4, 7, 4]}\n",
            "5:17: data.classes: the label 4 is there twice; name each class once",
        ),
        (
            MINIMAL + "data: {classes: [4, -1]}\n",
            "5:21: data.classes[1]: must be at least 0, not -1",
        ),
        (
            MINIMAL + "data: {classes: [4, 7.5]}\n",
            "5:21: data.classes[1]: must be a whole number, not 7.5",
        ),
        (MINIMAL + "data: {classes: 4}\n", "5:17: data.classes: must be a list, not 4"),
        (
            MINIMAL + "loss: {name: mse, factory: 'a:b'}\n",
            "5:7: loss: give exactly one of 'name' (a built-in loss) and 'factory'",
        ),
        (
            MINIMAL.replace("name: lenet5", "name: mlp, factory: 'a:b'"),
            "2:8: model: give exactly one of 'name' (a model of the zoo) and 'factory'",
        ),
        (
            MINIMAL + "cluster: {workers: 3, stragglers: {2: 2, 3: 4}}\n",
            "5:42: cluster.stragglers: there is no worker 3: ids go from 0 to 2",
        ),
        (
            MINIMAL + "cluster: {stragglers: {-1: 2}}\n",
            "5:24: cluster.stragglers: '-1' is not a worker id",
        ),
        (
            MINIMAL + "cluster: {stragglers: {'01': 2}}\n",
            "5:24: cluster.stragglers: '01' is not a worker",
        ),
        (
            MINIMAL + "cluster: {stragglers: {1.0: 2}}\n",
            "5:24: cluster.stragglers: '1.0' is not a worker",
        ),
        (
            MINIMAL + "cluster: {stragglers: {1: 0}}\n",
            "5:27: cluster.stragglers.1: must be greater than 0, not 0",
        ),
        (
            MINIMAL.replace("wasp}", "wasp, bound: [1]}"),
            "3:29: scheme.bound: must be a number or one of 'auto', not a list",
        ),
        (
            MINIMAL.replace("wasp}", "wasp, bound: aut}"),
            "3:29: scheme.bound: must be a number or one of 'auto', not the text 'aut'; did",
        ),
        (
            MINIMAL.replace("wasp}", "wasp, weights: [1]}"),
            "3:31: scheme.weights: the list is too short: item 2 is missing",
        ),
        (
            MINIMAL.replace("wasp}", "wasp, weights: [1, 2, 3]}"),
            "3:31: scheme.weights: must be a list of at",
        ),
        (MINIMAL + f"seed: {2**63}\n", "5:7: seed: must be at most 9223372036854775807"),
        (
            MINIMAL + "stop: {test_accuracy: 97}\n",
            "5:23: stop.test_accuracy: must be at most 1, not 97",
        ),
        (
            MINIMAL + "device: {kind: gpu}\n",
            "5:16: device.kind: must be one of 'auto', 'cpu' or 'cuda'",
        ),
        ("name: a|b\n" + MINIMAL[13:], r"1:7: name: 'a|b' is not a job name"),
        ('name: "a\\nb"\n' + MINIMAL[13:], r"1:7: name: 'a\nb' is not a job name"),
        ("name: x-hetjob-1\n" + MINIMAL[13:], "1:7: name: 'x-hetjob-1' is not a job name: Slurm"),
        (MINIMAL[13:], "1:1: required key 'name' is missing"),
        ("", "1:1: the file is empty"),
        ("# nothing\n", "1:1: the file is empty"),
        ("- a\n", "1:1: a job file is a mapping of keys, not a list"),
        ("hello\n", "1:1: a job file is a mapping of keys, not the text 'hello'"),
        ("~\n", "1:1: a job file is a mapping of keys, not ~"),
        ("17\n", "1:1: a job file is a mapping of keys, not 17"),
        (MINIMAL + "---\n" + MINIMAL, "5:1: a second document begins here"),
        (MINIMAL + "train:\n\tepochs: 1\n", "6:1: a tab cannot indent"),
        (MINIMAL.encode() + b"# caf\xe9\n", "5:6: byte 0xe9 is not UTF-8"),
        (b"\xef\xbb\xbfname: \xff", "1:7: byte 0xff is not UTF-8"),
        (MINIMAL.encode("utf-16"), "1:1: byte 0xff is not UTF-8"),
    ],
)
def test_one_fault(bench: Bench, text: str | bytes, line: str) -> None:
    assert bench.error(text).startswith(line)


def test_byte_order_mark_and_line_ends(bench: Bench) -> None:
    assert bench.load(b"\xef\xbb\xbf" + MINIMAL.replace("\n", "\r\n").encode()) == bench.load()


def test_steps_replace_the_default_interval(bench: Bench) -> None:
    evaluate = bench.load(MINIMAL + "evaluate: {every_steps: 5}\n").evaluate
    assert (evaluate.every_epochs, evaluate.every_steps) == (None, 5)
    evaluate = bench.load(MINIMAL + "evaluate: {every_epochs: ~}\n").evaluate
    assert (evaluate.every_epochs, evaluate.every_steps) == (None, None)


def test_factory_replaces_the_default_loss(bench: Bench) -> None:
    loss = bench.load(MINIMAL + "loss: {factory: 'my.losses:hinge', kwargs: {margin: 1}}\n").loss
    assert (loss.name, loss.factory, loss.kwargs) == (None, "my.losses:hinge", {"margin": 1})


def test_free_values_keep_their_types(bench: Bench) -> None:
    text = "{a: 1, b: 1.0, c: no, d: '1', e: [1, 2.5, ~, true], f: {g: 1e-3}, 7: x}"
    kwargs = bench.load(MINIMAL.replace("lenet5}", f"lenet5, kwargs: {text}}}")).model.kwargs
    assert repr(kwargs) == repr(
        {
            "a": 1,
            "b": 1.0,
            "c": "no",
            "d": "1",
            "e": [1, 2.5, None, True],
            "f": {"g": 0.001},
            "7": "x",
        }
    )


def test_aliases_are_values_of_their_own(bench: Bench) -> None:
    text = MINIMAL + "stop: {steps: &n 10}\ncheckpoint: {every_steps: *n}\nlog: {every_steps: *n}\n"
    job = bench.load(text)
    assert (job.stop.steps, job.checkpoint.every_steps, job.log.every_steps) == (10, 10, 10)


@pytest.mark.parametrize(
    "name", ["a b.yaml", "it's (1).yaml", '"q".yaml', "a\nb.yaml", "é.yml", "x"]
)
def test_file_names(tmp_path: Path, name: str) -> None:
    bench = Bench(tmp_path / name)
    assert bench.load().name == "digits"
    with pytest.raises(ConfigError) as caught:
        bench.load(MINIMAL + "sede: 1\n")
    assert "\n" not in str(caught.value)
    assert ":5:1: unknown key 'sede'" in str(caught.value)


def test_unreadable_files(tmp_path: Path) -> None:
    for path, reason in (
        (tmp_path / "missing.yaml", "No such file or directory"),
        (tmp_path, "Is a directory"),
        (tmp_path / "a\0b", "null byte"),
        (tmp_path / ("x" * 300), "File name too long"),
    ):
        with pytest.raises(ConfigError, match=f"cannot be read: .*{reason}"):
            load_job(path, Job)


def test_size_limit(bench: Bench) -> None:
    filler = b"#" * (MOST_BYTES - len(MINIMAL))
    assert bench.load(MINIMAL.encode() + filler).name == "digits"
    assert "larger than 1048576 bytes" in bench.errors(MINIMAL.encode() + filler + b"#")[0]


def test_checks_of_higher_rooms(bench: Bench) -> None:
    def check(job: object) -> list[Problem]:
        return [
            Problem(("train", "epochs"), "too many"),
            Problem(("data", "path"), "no such file"),
            Problem(("model", "kwargs", "x"), "unknown", at_key=True),
            Problem(("model", "kwargs", "y"), "is not there", at_key=True),
            Problem(("optimizer", "betas", 1), "is bad"),
            Problem((), "all is lost"),
        ]

    text = MINIMAL.replace("lenet5}", "lenet5, kwargs: {x: 1}}").replace("SGD", "Adam")
    text = text.replace("0.1}", "0.1, betas: [0.1, 0.2]}") + "train:\n  epochs: 3\n"
    assert bench.errors(text, checks=[check]) == [
        "1:1: no such file",
        "1:1: all is lost",
        "2:31: model.kwargs: is not there",
        "2:32: model.kwargs: unknown",
        "4:47: optimizer.betas[1]: is bad",
        "6:11: train.epochs: too many",
    ]


def test_checks_run_when_only_keys_are_wrong(bench: Bench) -> None:
    def check(job: object) -> list[Problem]:
        return [Problem(("seed",), "unlucky")]

    lines = bench.errors(MINIMAL + "seed: 13\nsede: 1\nseed: 2\n", checks=[check])
    assert [line.split(": ", 1)[1] for line in lines] == [
        "seed: unlucky",
        "unknown key 'sede'; did you mean 'seed'?",
        "duplicate key 'seed': on line 5 and on line 7",
    ]


def test_section_checks_run_beside_unknown_keys(bench: Bench) -> None:
    lines = bench.errors(MINIMAL + "cluster: {wrkrs: 3, stragglers: {9: 2}}\n")
    assert [line.split(": ")[-1] for line in lines] == [
        "unknown key 'wrkrs'; did you mean 'workers'?",
        "ids go from 0 to 1",
    ]


def test_messages_stay_readable(bench: Bench) -> None:
    for text in ("x" * 10_000 + ": 1\n", "seed: " + "x" * 10_000, "seed: !" + "x" * 10_000 + " 1"):
        assert max(map(len, bench.errors(MINIMAL + text))) < 1100


@pytest.mark.parametrize("size", ["2147483648", "2GiB", "2 GiB", "'2 GiB'", "2097152 KiB"])
def test_sizes(bench: Bench, size: str) -> None:
    assert bench.load(MINIMAL + f"data: {{cache_bytes: {size}}}\n").data.cache_bytes == 2**31


@pytest.mark.parametrize("size", ["-1", "1.5", "2 gigs", "true", "~", "[]"])
def test_not_a_size(bench: Bench, size: str) -> None:
    line = bench.error(MINIMAL + f"data: {{cache_bytes: {size}}}\n")
    assert line.startswith("5:21: data.cache_bytes: ")


def test_nan_is_refused_everywhere(bench: Bench) -> None:
    text = MINIMAL.replace("lenet5}", "lenet5, kwargs: {a: [.nan]}}")
    assert bench.error(text) == "2:36: must be a number that a job can use, not nan"
    assert bench.error(MINIMAL, "scheme.bound=.nan").endswith(
        "must be a number that a job can use, not nan"
    )
    assert bench.load(MINIMAL, "scheme.label=.nan").scheme.label == ".nan"
    assert bench.load(MINIMAL, "scheme.bound=.inf").scheme.bound == float("inf")
