"""Makes scipy_vectors.json, the values tests/against_scipy.rs compares with.

    python3 -m venv venv && venv/bin/pip install scipy==1.17.1 numpy==2.4.6
    venv/bin/python crates/statistics/tests/scipy_vectors.py > crates/statistics/tests/scipy_vectors.json
"""

import itertools
import json

import numpy as np
from scipy import stats


def samples():
    """Inputs: skewed, small, tied, long-tailed, odd and even sizes. Rounded so that the JSON holds them exactly."""
    g = np.random.default_rng(20261120)
    yield "two", [3.0, 1.0]
    yield "three", [2.5, -1.0, 9.0]
    yield "ties", [4.0, 4.0, 1.0, 4.0, 2.0, 2.0, 7.0, 4.0, 9.0]
    yield "exponential_12", [round(x, 6) for x in g.exponential(10.0, 12).tolist()]
    yield "lognormal_25", [round(x, 6) for x in g.lognormal(3.0, 0.8, 25).tolist()]
    yield "normal_40", [round(x, 6) for x in g.normal(100.0, 5.0, 40).tolist()]


PROBABILITIES = [0.0, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0]


def describe(values):
    a = np.array(values)
    out = {
        "values": values,
        "mean": a.mean(),
        "deviation": a.std(ddof=1),
        "mad": stats.median_abs_deviation(a),
        "quantiles": np.quantile(a, PROBABILITIES, method="linear").tolist(),
        "geometric_mean": stats.gmean(a) if (a > 0).all() else None,
    }
    if len(a) >= 8:
        for name, statistic in (("mean", np.mean), ("median", np.median)):
            r = stats.bootstrap((a,), statistic, n_resamples=200_000, batch=10_000, method="BCa", vectorized=True,
                                rng=np.random.default_rng(1))
            # SciPy gives NaN where the jackknife is degenerate; ours then leaves the acceleration out.
            out["bca_" + name] = None if np.isnan(r.confidence_interval.low) else list(r.confidence_interval)
    return out


def bca_of_ratio(x, y):
    ratio = lambda a, b, axis=-1: np.log(np.median(b, axis=axis)) - np.log(np.median(a, axis=axis))
    r = stats.bootstrap((x, y), ratio, n_resamples=200_000, batch=10_000, method="BCa", vectorized=True,
                        rng=np.random.default_rng(1))
    return list(np.exp(r.confidence_interval))


def signed_rank():
    g = np.random.default_rng(7)
    cases = [
        ("no_ties", [1.5, -0.3, 2.2, 3.1, -0.9, 4.4, 0.2, 5.3]),
        ("one_sided", [0.1, 0.2, 0.4, 0.8, 1.6, 3.2]),
        ("n15", [round(x, 6) for x in g.normal(0.4, 1.0, 15).tolist()]),
        ("n60", [round(x, 6) for x in g.normal(0.25, 1.0, 60).tolist()]),
    ]
    out = [{"name": n, "differences": d, "p": stats.wilcoxon(d, method="exact").pvalue} for n, d in cases]
    # With ties and zeros the exact p value is counted over all sign flips.
    for name, d in [("ties", [1.0, -1.0, 2.0, 2.0, 2.0, -3.0, 4.0, 4.0, 5.0]), ("zeros", [0.0, 1.0, -2.0, 0.0, 3.0, 3.0, 4.0, 6.0])]:
        nonzero = np.array([x for x in d if x != 0.0])
        ranks = stats.rankdata(np.abs(nonzero))
        observed = ranks[nonzero > 0].sum()
        sums = [sum(r for r, s in zip(ranks, signs) if s) for signs in itertools.product([0, 1], repeat=len(ranks))]
        low = np.mean([s <= observed for s in sums])
        high = np.mean([s >= observed for s in sums])
        out.append({"name": name, "differences": d, "p": min(1.0, 2 * min(low, high))})
    big = [round(x, 1) for x in g.normal(0.15, 1.0, 180).tolist()]
    big = [x for x in big if x != 0.0]
    r = stats.wilcoxon(big, method="asymptotic", correction=True, zero_method="wilcox")
    out.append({"name": "asymptotic_with_ties", "differences": big, "p": r.pvalue})
    return out


def rank_sum():
    g = np.random.default_rng(8)
    r6 = lambda v: [round(x, 6) for x in v.tolist()]
    out = []
    for name, a, b in [
        ("small", [1.0, 5.0, 2.5], [4.0, 6.0, 7.0, 3.0]),
        ("n12_n15", r6(g.normal(0, 1, 12)), r6(g.normal(0.9, 1, 15))),
        ("n20_n30", r6(g.normal(0, 1, 20)), r6(g.normal(0.5, 1, 30))),
    ]:
        out.append({"name": name, "a": a, "b": b, "p": stats.mannwhitneyu(a, b, method="exact").pvalue})
    a, b = [1.0, 2.0, 2.0, 3.0, 3.0], [2.0, 3.0, 3.0, 4.0, 4.0, 5.0]
    p = stats.permutation_test((a, b), lambda x, y: stats.rankdata(np.concatenate([x, y]))[: len(x)].sum(),
                               vectorized=False, n_resamples=np.inf).pvalue
    out.append({"name": "ties", "a": a, "b": b, "p": p})
    a, b = [round(x, 1) for x in g.normal(0, 1, 60).tolist()], [round(x, 1) for x in g.normal(0.4, 1, 45).tolist()]
    p = stats.mannwhitneyu(a, b, method="asymptotic", use_continuity=True).pvalue
    out.append({"name": "asymptotic_with_ties", "a": a, "b": b, "p": p})
    return out


def main():
    x = dict(samples())
    zs = [-8.0, -3.0, -1.0, -0.1, 0.0, 0.5, 1.96, 4.0]
    ps = [1e-300, 1e-10, 0.001, 0.025, 0.2, 0.5, 0.8, 0.975, 0.999999]
    ts = [-4.0, -1.0, 0.0, 0.3, 2.0, 12.0]
    tables = {
        "normal_cdf": [[z, stats.norm.cdf(z)] for z in zs],
        "normal_quantile": [[p, stats.norm.ppf(p)] for p in ps],
        "t_cdf": [[t, n, stats.t.cdf(t, n)] for t in ts for n in (1, 2, 7, 30)],
        "t_quantile": [[p, n, stats.t.ppf(p, n)] for p in (0.025, 0.2, 0.8, 0.975) for n in (1, 2, 7, 8, 30)],
        "probabilities": PROBABILITIES,
        "samples": [{"name": name, **describe(values)} for name, values in x.items()],
        "ratio_of_medians": {
            "baseline": x["exponential_12"],
            "candidate": x["lognormal_25"],
            "bca": bca_of_ratio(np.array(x["exponential_12"]), np.array(x["lognormal_25"])),
        },
        "signed_rank": signed_rank(),
        "rank_sum": rank_sum(),
    }
    # One line per table: short, and differences stay readable.
    print("{" + ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in tables.items()) + "}")


if __name__ == "__main__":
    main()
