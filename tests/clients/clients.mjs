// Real clients against a server: node clients.mjs BASE_URL KEY. Prints "ok - WHAT" or "not ok - WHAT" per check. Every
// client asks for the same greedy answer, streamed and whole, and meets the same errors.
import assert from 'node:assert/strict';
import OpenAI from 'openai';
import { generateText, streamText } from 'ai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { ChatOpenAI, OpenAI as CompletionOpenAI } from '@langchain/openai';

const [, , base, key] = process.argv;
const question = 'Tell me a story about a cat.';
const messages = [{ role: 'user', content: question }];
let failures = 0;

async function check(what, body) {
  try {
    await body();
    console.log(`ok - ${what}`);
  } catch (failure) {
    failures += 1;
    console.log(
      `not ok - ${what}\n  ${String(failure?.stack ?? failure)
        .split('\n')
        .join('\n  ')}`,
    );
  }
}

async function status(promise) {
  try {
    await promise;
  } catch (failure) {
    return failure.status ?? failure.statusCode ?? failure.lastError?.statusCode ?? String(failure);
  }
  return 'no error';
}

const openai = new OpenAI({ baseURL: base, apiKey: key, maxRetries: 0 });
const model = (await openai.models.list()).data[0].id;
const greedy = { model, temperature: 0, max_tokens: 24 };
const whole = await openai.chat.completions.create({ ...greedy, messages });
const expected = whole.choices[0].message.content;

async function withOpenai() {
  await check('openai: a whole answer has everything a client reads', () => {
    assert.equal(whole.object, 'chat.completion');
    assert.match(whole.id, /^chatcmpl-/);
    assert.equal(whole.choices[0].message.role, 'assistant');
    assert.ok(expected.length > 10);
    assert.ok(['length', 'stop'].includes(whole.choices[0].finish_reason));
    assert.equal(whole.usage.total_tokens, whole.usage.prompt_tokens + whole.usage.completion_tokens);
  });
  await check('openai: a stream gives the same text, one id, the role first and the usage last', async () => {
    const stream = await openai.chat.completions.create({
      ...greedy,
      messages,
      stream: true,
      stream_options: { include_usage: true },
    });
    const chunks = [];
    for await (const chunk of stream) chunks.push(chunk);
    assert.equal(chunks[0].choices[0].delta.role, 'assistant');
    assert.equal(new Set(chunks.map((chunk) => chunk.id + chunk.created)).size, 1);
    assert.equal(chunks.map((chunk) => chunk.choices[0]?.delta?.content ?? '').join(''), expected);
    assert.equal(chunks.filter((chunk) => chunk.choices[0]?.finish_reason).length, 1);
    const last = chunks.at(-1);
    assert.deepEqual(last.choices, []);
    assert.equal(last.usage.completion_tokens, whole.usage.completion_tokens);
    assert.ok(last.usage.prompt_tokens_details.cached_tokens >= 0);
  });
  await check('openai: the stream helper puts the answer together', async () => {
    const helper = openai.beta.chat.completions.stream({ ...greedy, messages });
    assert.equal(await helper.finalContent(), expected);
  });
  await check('openai: several choices differ, repeat with a seed, and carry log-probabilities', async () => {
    const ask = () =>
      openai.chat.completions.create({
        model,
        messages,
        max_tokens: 12,
        n: 3,
        seed: 7,
        logprobs: true,
        top_logprobs: 2,
      });
    const [first, second] = [await ask(), await ask()];
    assert.deepEqual(
      first.choices.map((one) => one.message.content),
      second.choices.map((one) => one.message.content),
    );
    assert.equal(new Set(first.choices.map((one) => one.message.content)).size, 3);
    for (const choice of first.choices) {
      assert.equal(choice.logprobs.content.length, 12);
      for (const token of choice.logprobs.content) assert.equal(token.top_logprobs.length, 2);
    }
  });
  await check('openai: completions, streamed and whole, with stop', async () => {
    const ask = { model, prompt: 'Once upon a time', max_tokens: 20, temperature: 0, stop: ['.'] };
    const text = (await openai.completions.create(ask)).choices[0].text;
    assert.ok(text.length > 0 && !text.includes('.'));
    let streamed = '';
    for await (const chunk of await openai.completions.create({ ...ask, stream: true }))
      streamed += chunk.choices[0]?.text ?? '';
    assert.equal(streamed, text);
  });
  await check('openai: errors have their classes, statuses and fields', async () => {
    await assert.rejects(openai.chat.completions.create({ ...greedy, messages, temperature: 1000 }), (failure) => {
      assert.ok(failure instanceof OpenAI.BadRequestError);
      assert.equal(failure.param, 'temperature');
      return true;
    });
    await assert.rejects(
      openai.chat.completions.create({ ...greedy, model: 'nobody', messages }),
      OpenAI.NotFoundError,
    );
    const stranger = new OpenAI({ baseURL: base, apiKey: 'wrong-key-wrong-key', maxRetries: 0 });
    await assert.rejects(stranger.models.list(), OpenAI.AuthenticationError);
    await assert.rejects(
      openai.chat.completions.create({ ...greedy, messages, tools: [{ type: 'function', function: { name: 'f' } }] }),
      (failure) => failure.status === 400 && failure.code === 'unsupported_parameter',
    );
    await assert.rejects(
      openai.chat.completions.create({ ...greedy, messages: [{ role: 'user', content: 'x '.repeat(20000) }] }),
      (failure) => failure.code === 'context_length_exceeded',
    );
  });
  await check('openai: an aborted stream ends and the server goes on', async () => {
    const stream = await openai.chat.completions.create({
      model,
      messages,
      max_tokens: 400,
      ignore_eos: true,
      stream: true,
    });
    let chunks = 0;
    for await (const _ of stream) if (++chunks === 3) stream.controller.abort();
    assert.ok(chunks < 400);
    assert.equal(
      (await openai.chat.completions.create({ ...greedy, messages })).choices[0].message.content,
      expected,
    );
  });
}

async function withAi() {
  const provider = createOpenAICompatible({ name: 'millrace', baseURL: base, apiKey: key });
  const ask = { model: provider(model), prompt: question, temperature: 0, maxTokens: 24, maxRetries: 0 };
  await check('ai: generateText', async () => {
    const answer = await generateText(ask);
    assert.equal(answer.text, expected);
    assert.equal(answer.usage.completionTokens, whole.usage.completion_tokens);
  });
  await check('ai: streamText', async () => {
    const answer = streamText(ask);
    let text = '';
    for await (const delta of answer.textStream) text += delta;
    assert.equal(text, expected);
    assert.equal(await answer.finishReason, whole.choices[0].finish_reason);
  });
  await check('ai: errors', async () => {
    assert.equal(await status(generateText({ ...ask, topP: 5 })), 400);
    assert.equal(await status(generateText({ ...ask, model: provider('nobody') })), 404);
    const stranger = createOpenAICompatible({ name: 'millrace', baseURL: base, apiKey: 'wrong-key-wrong-key' });
    assert.equal(await status(generateText({ ...ask, model: stranger(model) })), 401);
  });
}

async function withLangchain() {
  const settings = {
    model,
    apiKey: key,
    temperature: 0,
    maxTokens: 24,
    maxRetries: 0,
    configuration: { baseURL: base },
  };
  const chat = new ChatOpenAI(settings);
  await check('langchain: invoke', async () => {
    const answer = await chat.invoke(question);
    assert.equal(answer.content, expected);
    assert.equal(answer.usage_metadata.output_tokens, whole.usage.completion_tokens);
  });
  await check('langchain: stream', async () => {
    let text = '';
    for await (const chunk of await chat.stream(question)) text += chunk.content;
    assert.equal(text, expected);
  });
  await check('langchain: completions', async () => {
    const completion = new CompletionOpenAI(settings);
    assert.ok((await completion.invoke('Once upon a time')).length > 0);
  });
  await check('langchain: errors', async () => {
    assert.equal(await status(new ChatOpenAI({ ...settings, model: 'nobody' }).invoke(question)), 404);
    assert.equal(await status(new ChatOpenAI({ ...settings, apiKey: 'wrong-key-wrong-key' }).invoke(question)), 401);
  });
}

await withOpenai();
await withAi();
await withLangchain();
process.exit(failures === 0 ? 0 : 1);
