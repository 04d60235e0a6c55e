// Real clients against a server: node clients.mjs BASE_URL KEY. Prints "ok - WHAT" or "not ok - WHAT" per check. Every
// client asks for the same greedy answer, streamed and whole, and meets the same errors.
import assert from 'node:assert/strict';
import Anthropic from '@anthropic-ai/sdk';
import { Ollama } from 'ollama';
import OpenAI from 'openai';
import { generateText, streamText } from 'ai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { ChatOpenAI, OpenAI as CompletionOpenAI } from '@langchain/openai';
import { check, status, done } from './check.mjs';

const [, , base, key] = process.argv;
const address = new URL(base).origin;
const question = 'Tell me a story about a cat.';
const messages = [{ role: 'user', content: question }];
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

async function withResponses() {
  const ask = { model, input: question, temperature: 0, max_output_tokens: 24 };
  await check('openai: a response is the answer of a chat', async () => {
    const answer = await openai.responses.create(ask);
    assert.equal(answer.output_text, expected);
    assert.equal(answer.usage.output_tokens, whole.usage.completion_tokens);
    assert.equal(answer.status, whole.choices[0].finish_reason === 'length' ? 'incomplete' : 'completed');
  });
  await check('openai: the stream of a response is put together', async () => {
    const stream = openai.responses.stream(ask);
    let text = '';
    stream.on('response.output_text.delta', (event) => {
      text += event.delta;
    });
    const last = await stream.finalResponse();
    assert.equal(text, expected);
    assert.equal(last.output[0].content[0].text, expected);
  });
  await check('openai: a response bound to a schema', async () => {
    const format = { type: 'json_schema', name: 'a', schema: { enum: ['yes'] } };
    assert.equal((await openai.responses.create({ ...ask, text: { format } })).output_text, '"yes"');
  });
  await check('openai: errors of responses', async () => {
    await assert.rejects(openai.responses.create({ ...ask, previous_response_id: 'resp_1' }), OpenAI.BadRequestError);
  });
}

async function withAnthropic() {
  const anthropic = new Anthropic({ baseURL: address, apiKey: key, maxRetries: 0 });
  const ask = { model, messages, temperature: 0, max_tokens: 24 };
  await check('anthropic: a whole message', async () => {
    const message = await anthropic.messages.create(ask);
    assert.equal(message.content[0].text, expected);
    assert.equal(message.usage.output_tokens, whole.usage.completion_tokens);
    assert.equal(message.stop_reason, whole.choices[0].finish_reason === 'length' ? 'max_tokens' : 'end_turn');
  });
  await check('anthropic: the stream helper puts the message together', async () => {
    const stream = anthropic.messages.stream(ask);
    let text = '';
    stream.on('text', (delta) => {
      text += delta;
    });
    const message = await stream.finalMessage();
    assert.equal(text, expected);
    assert.equal(message.content[0].text, expected);
    assert.equal(message.usage.output_tokens, whole.usage.completion_tokens);
  });
  await check('anthropic: tokens are counted', async () => {
    const counted = await anthropic.messages.countTokens({ model, messages });
    assert.equal(counted.input_tokens, whole.usage.prompt_tokens);
  });
  await check('anthropic: an aborted stream ends and the server goes on', async () => {
    const stream = await anthropic.messages.create({ ...ask, max_tokens: 400, stream: true });
    for await (const event of stream) if (event.type === 'content_block_delta') stream.controller.abort();
    assert.equal((await anthropic.messages.create(ask)).content[0].text, expected);
  });
  await check('anthropic: errors have their classes', async () => {
    await assert.rejects(anthropic.messages.create({ ...ask, temperature: -1 }), (failure) => {
      assert.ok(failure instanceof Anthropic.BadRequestError);
      assert.equal(failure.error.error.type, 'invalid_request_error');
      return true;
    });
    await assert.rejects(anthropic.messages.create({ ...ask, model: 'nobody' }), Anthropic.NotFoundError);
    const stranger = new Anthropic({ baseURL: address, apiKey: 'wrong-key-wrong-key', maxRetries: 0 });
    await assert.rejects(stranger.messages.create(ask), Anthropic.AuthenticationError);
  });
}

async function withOllama() {
  const ollama = new Ollama({ host: address, headers: { Authorization: `Bearer ${key}` } });
  const ask = { model, messages, options: { temperature: 0, num_predict: 24 } };
  await check('ollama: a chat, whole and streamed', async () => {
    const answer = await ollama.chat(ask);
    assert.equal(answer.message.content, expected);
    assert.equal(answer.eval_count, whole.usage.completion_tokens);
    let text = '';
    for await (const part of await ollama.chat({ ...ask, stream: true })) text += part.message.content;
    assert.equal(text, expected);
  });
  await check('ollama: a prompt, and an answer bound to a schema', async () => {
    const answer = await ollama.generate({ model, prompt: question, options: ask.options });
    assert.equal(answer.response, expected);
    const bound = await ollama.generate({ model, prompt: question, format: { enum: ['yes'] }, options: ask.options });
    assert.equal(bound.response, '"yes"');
  });
  await check('ollama: what there is', async () => {
    assert.equal((await ollama.list()).models[0].name, model);
    assert.equal((await ollama.ps()).models[0].model, model);
    assert.ok((await ollama.show({ model })).capabilities.includes('completion'));
  });
  await check('ollama: an aborted stream ends and the server goes on', async () => {
    const stream = await ollama.chat({ ...ask, options: { num_predict: 400 }, stream: true });
    try {
      for await (const _ of stream) stream.abort();
    } catch (failure) {
      assert.equal(failure.name, 'AbortError'); // a short answer may be there before
    }
    assert.equal((await ollama.chat(ask)).message.content, expected);
  });
  await check('ollama: errors', async () => {
    await assert.rejects(ollama.chat({ ...ask, model: 'nobody' }), (failure) => failure.status_code === 404);
    await assert.rejects(
      ollama.chat({ ...ask, options: { temperature: -1 } }),
      (failure) => failure.status_code === 400 && /between 0 and 100/.test(failure.message),
    );
  });
}

await withOpenai();
await withResponses();
await withAi();
await withLangchain();
await withAnthropic();
await withOllama();
done();
