"""Writes trees.npz: forests of scikit-learn as skl2onnx exports them, rows, and its own answers.

    python tests/frontends/make_trees.py

Needs scikit-learn and skl2onnx. The rows are float32, and thresholds lie between such.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from skl2onnx import to_onnx
from sklearn import ensemble, tree


def main() -> None:
    rng = np.random.default_rng(3412)
    x = rng.standard_normal((150, 4)).astype(np.float32)
    two = (x[:, 0] + x[:, 1] * x[:, 2] > 0).astype(int)
    three = (x[:, 0] > 0) + 2 * (x[:, 1] * x[:, 2] > 0.5) + 3
    number = x[:, 0] * x[:, 1]
    pair = np.stack([number, x[:, 3] - x[:, 2]], 1)
    models = {
        "tree": (tree.DecisionTreeClassifier(max_depth=4, random_state=1), two),
        "forest": (ensemble.RandomForestClassifier(4, max_depth=4, random_state=2), three),
        "extra": (ensemble.ExtraTreesClassifier(3, max_depth=3, random_state=3), two),
        "boosted": (ensemble.GradientBoostingClassifier(n_estimators=3, random_state=4), three),
        "boosted_two": (ensemble.GradientBoostingClassifier(n_estimators=4, random_state=5), two),
        "adaptive": (ensemble.AdaBoostClassifier(n_estimators=3, random_state=6), three),
        "numbers": (ensemble.RandomForestRegressor(3, max_depth=5, random_state=7), pair),
        "boosted_number": (ensemble.GradientBoostingRegressor(n_estimators=5), number),
    }
    arrays: dict[str, np.ndarray] = {}
    rows = x[:11]
    for name, (model, target) in models.items():
        model.fit(x, target)
        classifies = hasattr(model, "predict_proba")
        proto = to_onnx(model, x[:1], options={"zipmap": False} if classifies else None)
        arrays[f"{name}|model"] = np.frombuffer(proto.SerializeToString(), np.uint8)
        arrays[f"{name}|rows"] = rows
        if classifies:
            arrays[f"{name}|label"] = model.predict(rows)
        scores = model.predict_proba(rows) if classifies else model.predict(rows)
        arrays[f"{name}|scores"] = np.reshape(scores, (len(rows), -1))
    np.savez_compressed(Path(__file__).with_name("trees.npz"), **arrays)


if __name__ == "__main__":
    main()
