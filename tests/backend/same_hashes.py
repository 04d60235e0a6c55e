"""Whether two runs of `millrace verify ops --json` found the same numbers, bit for bit: same_hashes.py ONE OTHER."""
import json
import sys


def hashes(path):
    with open(path, encoding="utf-8") as file:
        lines = json.load(file)["lines"]
    # Only Hopper's kernels multiply FP8 as FP8; the portable ones make it bfloat16.
    return {line["operation"]: line["hash"] for line in lines if "FP8_128" not in line["operation"]}


def main():
    one, other = hashes(sys.argv[1]), hashes(sys.argv[2])
    different = [name for name in one if one[name] != other.get(name)]
    for name in different:
        print(f"not the same bits: {name}: {one[name]} and {other.get(name)}")
    print(f"{len(one) - len(different)} of {len(one)} operations have the same bits")
    return 1 if different or len(one) != len(other) else 0


if __name__ == "__main__":
    sys.exit(main())
