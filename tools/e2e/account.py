"""What became of each end-to-end spec.

    account.py --report REPORT PASSES   prints the result of each spec that ran, from ginkgo's JSON report
    account.py PASSES LEFT_OUT <SPECS   checks that each spec is listed as passing or is left out for a reason
"""

import json
import re
import sys


def listed(path):
    with open(path, encoding="utf-8") as file:
        return [line.rstrip("\n") for line in file if line.strip() and not line.startswith("#")]


def name_of(spec):
    words = (spec["ContainerHierarchyTexts"] or []) + [spec["LeafNodeText"]]
    return " ".join(word for word in words if word)


def report(path, passes):
    results = {}
    with open(path, encoding="utf-8") as file:
        for suite in json.load(file):
            for spec in suite["SpecReports"] or []:
                if spec["LeafNodeType"] != "It" or spec["State"] == "skipped" and not spec.get("RunTime"):
                    continue
                results[name_of(spec)] = spec
    for name, spec in sorted(results.items()):
        failure = spec.get("Failure") or {}
        message = " ".join(failure.get("Message", "").split())[:300]
        print(spec["State"], f"{spec['RunTime'] / 1e9:.1f}", name, message, sep="\t")
    return all(results[name]["State"] == "passed" for name in passes if name in results)


def account(specs, passes, left_out):
    """Lists what is unaccounted for, and how many specs each reason leaves out."""
    reasons = [line.split("\t", 1) for line in left_out]
    reasons = [(re.compile(pattern), reason) for pattern, reason in reasons]
    counts, fine = {}, True
    for name in specs:
        if name in passes:
            counts["passes"] = counts.get("passes", 0) + 1
            continue
        reason = next((reason for pattern, reason in reasons if pattern.search(name)), None)
        if reason is None:
            fine = False
            print("unaccounted for:", name)
        else:
            counts[reason] = counts.get(reason, 0) + 1
    for name in sorted(passes - set(specs)):
        fine = False
        print("listed, but no spec:", name)
    for reason, count in sorted(counts.items(), key=lambda item: -item[1]):
        print(f"{count:5} {reason}")
    return fine


if sys.argv[1] == "--report":
    good = report(sys.argv[2], set(listed(sys.argv[3])))
else:
    good = account([line.strip() for line in sys.stdin], set(listed(sys.argv[1])), listed(sys.argv[2]))
sys.exit(not good)
