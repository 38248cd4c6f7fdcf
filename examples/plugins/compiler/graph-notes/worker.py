import json

from packager_worker import run


def work(spec, report):
    config = json.loads((spec.inputs["model"] / "config.json").read_text())
    report.progress("compiling")
    notes = {"model_type": config["model_type"], "tp": spec.parameters["tp_degree"]}
    (spec.output / "notes.json").write_text(json.dumps(notes))


if __name__ == "__main__":
    run(work)
