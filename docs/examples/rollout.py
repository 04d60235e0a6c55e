"""A training loop around a server: rollouts, rewards, scores, and new weights, round after round.

    millrace serve -m weights/w0.gguf --weights-dir weights
    python3 rollout.py http://127.0.0.1:8080 w1.gguf w2.gguf

The files stand for what a trainer writes after each round. Standard library only. Log-probabilities of a rollout and
of the same tokens scored afterwards are the same numbers, to the last bit: nothing has to be corrected for.
"""
import json
import os
import sys
import urllib.request

PROMPTS = [[1, 403, 407, 261], [1, 500, 507], [1, 350]]
SAMPLES, TOKENS = 4, 24


def post(server, path, body):
    headers = {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ.get("API_KEY", "none")}
    with urllib.request.urlopen(urllib.request.Request(server + path, json.dumps(body).encode(), headers)) as answer:
        return json.load(answer)


def rollouts(server, round_number):
    """Answers with the log-probability of each token, and the weights they are of."""
    for number, prompt in enumerate(PROMPTS):
        said = post(server, "/v1/completions", {
            "prompt": prompt, "n": SAMPLES, "max_tokens": TOKENS, "temperature": 1, "top_k": 0, "top_p": 1, "min_p": 0,
            "seed": 1000 * round_number + number, "logprobs": 0, "return_token_ids": True, "ignore_eos": True})
        for choice in said["choices"]:
            yield prompt, choice["token_ids"], choice["logprobs"]["token_logprobs"], said["system_fingerprint"]


def score(server, prompt, answer):
    """How likely the weights that are served now think the answer is, token by token."""
    said = post(server, "/v1/completions", {
        "prompt": prompt + answer, "max_tokens": 1, "temperature": 0, "echo": True, "logprobs": 0})
    return said["choices"][0]["logprobs"]["token_logprobs"][len(prompt):len(prompt) + len(answer)]


def reward(answer):
    return len(set(answer)) / len(answer)  # yours goes here


def main(server, files):
    for round_number, file in enumerate(files):
        batch = list(rollouts(server, round_number))
        rewards = [reward(answer) for _, answer, _, _ in batch]
        mean = sum(rewards) / len(rewards)
        # On policy: the ratio of new to old probabilities begins at exactly one.
        for prompt, answer, logprobs, _ in batch:
            assert score(server, prompt, answer) == logprobs, "scored otherwise than it was written"
        # A trainer takes (prompt, answer, logprobs, reward - mean) from here and writes the next weights.
        update = post(server, "/update_weights_from_disk", {"model_path": file, "mode": "wait"})
        before = batch[0][3]
        assert update["success"] and update["fingerprint"] != before, update
        moved = [sum(score(server, prompt, answer)) - sum(logprobs) for prompt, answer, logprobs, _ in batch]
        print(f"round {round_number}: {len(batch)} answers of {before}, reward {mean:.3f}, "
              f"now {update['fingerprint']}, "
              f"log-probabilities moved by {sum(moved) / len(moved):+.3f}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
