// Clients that ask for vectors, against an encoder whose vectors another implementation stored: node vectors.mjs
// BASE_URL KEY GOLDEN. GOLDEN is its golden.safetensors: token ids of six texts and a vector for each.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { Ollama } from 'ollama';
import OpenAI from 'openai';
import { check, status, done } from './check.mjs';

const [, , base, key, path] = process.argv;
const address = new URL(base).origin;

const bytes = readFileSync(path);
const start = 8 + Number(bytes.readBigUInt64LE(0));
const head = JSON.parse(bytes.subarray(8, start).toString());
function rows(name) {
  const { dtype, shape, data_offsets: at } = head[name];
  const read = dtype === 'F32' ? (place) => bytes.readFloatLE(place) : (place) => bytes.readInt32LE(place);
  const wide = shape[1] ?? 1;
  const row = (i) => Array.from({ length: wide }, (_, k) => read(start + at[0] + 4 * (i * wide + k)));
  return Array.from({ length: shape[0] }, (_, i) => row(i));
}
const lengths = rows('lengths');
const ids = rows('input_ids').map((row, i) => row.slice(0, lengths[i][0]));
const stored = rows('vectors');
const cosine = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0) / Math.hypot(...a) / Math.hypot(...b);
const near = (a, b, what) => assert.ok(a.length === b.length && cosine(a, b) > 0.9999, `${what}: ${cosine(a, b)}`);

const openai = new OpenAI({ baseURL: base, apiKey: key, maxRetries: 0 });
const { id: model } = (await openai.models.list()).data[0];
await check('openai: vectors of tokens, as numbers, are those that are stored', async () => {
  const { data } = await openai.embeddings.create({ model, input: ids, encoding_format: 'float' });
  assert.equal(data.length, stored.length);
  data.forEach(({ embedding, index }, i) => near(embedding, stored[index], `text ${i}`));
});
await check('openai: the client asks for base64 by itself, and has the same', async () => {
  const [float, base64] = await Promise.all(
    [{ encoding_format: 'float' }, {}].map((more) => openai.embeddings.create({ model, input: ids[0], ...more })),
  );
  near(base64.data[0].embedding, float.data[0].embedding, 'base64');
  near(base64.data[0].embedding, stored[0], 'base64');
});
await check('openai: fewer dimensions are the first ones, of length 1', async () => {
  const { data } = await openai.embeddings.create({ model, input: ids[1], dimensions: 8, encoding_format: 'float' });
  near(data[0].embedding, stored[1].slice(0, 8), 'eight');
  assert.ok(Math.abs(Math.hypot(...data[0].embedding) - 1) < 1e-4);
});
await check('openai: too many dimensions are refused', async () => {
  const asked = openai.embeddings.create({ model, input: ids[0], dimensions: 4096 });
  assert.equal(await status(asked), 400);
});
await check('ollama: embed gives what the same texts give elsewhere', async () => {
  const ollama = new Ollama({ host: address, headers: { Authorization: `Bearer ${key}` } });
  const input = ['hello world', 'fast fox'];
  const { embeddings } = await ollama.embed({ model, input });
  const { data } = await openai.embeddings.create({ model, input, encoding_format: 'float' });
  embeddings.forEach((vector, i) => near(vector, data[i].embedding, input[i]));
  const { embedding } = await ollama.embeddings({ model, prompt: input[0] });
  near(embedding, embeddings[0], 'embeddings');
  const eight = (await ollama.embed({ model, input: input[0], dimensions: 8 })).embeddings[0];
  near(eight, embeddings[0].slice(0, 8), 'eight');
});
done();
