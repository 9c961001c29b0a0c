"""Where a tuning looks next: Optuna, which the library asks and tells."""

import json
import os
import sys

from ._dask import connect, error
from ._native import WarmcoreError, tune


def form(asked):
    """A tuning's file from a dict of its keys."""

    def text(value):
        match value:
            case bool():
                return "true" if value else "false"
            case str() | os.PathLike():
                return json.dumps(os.fspath(value), ensure_ascii=False)
            case float():
                return repr(value)
            case dict():
                return "{ " + ", ".join(f"{text(str(key))} = {text(of)}" for key, of in value.items()) + " }"
            case list() | tuple() | range():
                return "[" + ", ".join(map(text, value)) + "]"
            case _ if hasattr(value, "__index__"):
                return str(int(value))
        raise TypeError(f"a tuning has texts, numbers, lists and dicts, not {type(value).__name__}")

    whole = {"schema": "warmcore-tuning-form-1", "title": "tuning", **asked}
    return "".join(f"{text(str(key))} = {text(value)}\n" for key, value in whole.items())


class Sampler:
    """Proposes candidates. The same seed gives the same ones, so that a search that goes on asks for them again."""

    def __init__(self, name, knobs, seed, budget, storage):
        try:
            import optuna
        except ImportError as missing:
            raise error(f"Optuna is not installed: {missing}", "pip install 'warmcore[tune]'") from missing
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        if storage is not None:
            # Trials come again from run directories; a storage from before would have them twice.
            if os.path.exists(storage):
                os.remove(storage)
            from optuna.storages.journal import JournalFileBackend

            storage = optuna.storages.JournalStorage(JournalFileBackend(os.fspath(storage)))
        # A third of a small budget is spread widely first.
        sampler = optuna.samplers.TPESampler(seed=seed % 2**32, n_startup_trials=min(10, max(2, budget // 3)), constant_liar=True)
        self.called = f"optuna {optuna.__version__} TPESampler"
        self.study = optuna.create_study(study_name=name, sampler=sampler, storage=storage, direction="minimize")
        self.knobs, self.asked = knobs, []
        # The best is often at an end of the ranges, where a sampler seldom looks.
        for end in (0, 1):
            self.study.enqueue_trial({name: numbers[end] if numbers else words[-end] for name, numbers, words in knobs})

    def ask(self, count):
        self.asked = [self.study.ask() for _ in range(count)]
        return [[str(self.value(trial, *knob)) for knob in self.knobs] for trial in self.asked]

    @staticmethod
    def value(trial, name, numbers, words):
        if numbers is None:
            return trial.suggest_categorical(name, words)
        low, high, log = numbers
        return trial.suggest_int(name, low, high, log=log)

    def tell(self, values):
        for trial, value in zip(self.asked, values, strict=True):
            # Optuna takes no infinite value.
            self.study.tell(trial, min(value, 1e300))


def command(words):
    """For `warmcore tune`: what is asked as JSON, the result as JSON on standard output."""
    asked = json.loads(words[0])

    def told(tried, budget, best):
        if not asked["quiet"]:
            print(f"{tried} of {budget} candidates; the best has {best:.4g} times the default's", file=sys.stderr)

    try:
        client = None if asked["dask"] is None else connect(asked["dask"])
        result = tune(asked["file"], client=client, out=asked["out"], jobs=asked["jobs"], progress=told)
        print(json.dumps({"text": repr(result), "json": result.json()}))
        return 0
    except WarmcoreError as failed:
        print(json.dumps({"error": str(failed).split("\n  help: ")[0], "advice": failed.advice}))
        return 1
