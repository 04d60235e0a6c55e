// Libraries at their newest versions against a server that says what a script has: node libraries.mjs BASE_URL KEY.
// Each runs a tool and goes on with what it gave, hears an answer as it comes, stops one, and is told of an error.
import assert from 'node:assert/strict';
import Anthropic from '@anthropic-ai/sdk';
import { createAnthropic } from '@ai-sdk/anthropic';
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { HumanMessage, ToolMessage } from '@langchain/core/messages';
import { ChatOpenAI } from '@langchain/openai';
import { generateText, jsonSchema, stepCountIs, streamText, tool } from 'ai';
import { Ollama } from 'ollama';
import OpenAI from 'openai';
import { check, status, done } from '../check.mjs';

const [, , base, key] = process.argv;
const address = new URL(base).origin;
const question = 'What is the weather?';
const parameters = {
  type: 'object',
  properties: { city: { type: 'string' } },
  required: ['city'],
  additionalProperties: false,
};
const described = { name: 'get_weather', description: 'The weather of a city.', parameters };
const functions = [{ type: 'function', function: described }];
const user = (content) => [{ role: 'user', content }];
const sunny = 'It is sunny in Paris.';

async function withOpenai() {
  const openai = new OpenAI({ baseURL: base, apiKey: key, maxRetries: 0 });
  const asked = { model: 'script', tools: functions };
  await check('openai: a tool and the answer to it', async () => {
    const first = await openai.chat.completions.create({ ...asked, messages: user(question) });
    const { message, finish_reason } = first.choices[0];
    assert.equal(finish_reason, 'tool_calls');
    assert.deepEqual(JSON.parse(message.tool_calls[0].function.arguments), { city: 'Paris' });
    const given = { role: 'tool', tool_call_id: message.tool_calls[0].id, content: 'sunny' };
    const second = await openai.chat.completions.create({ ...asked, messages: [...user(question), message, given] });
    assert.equal(second.choices[0].message.content, sunny);
  });
  await check('openai: runTools streams the call and the answer', async () => {
    const cities = [];
    const runner = openai.chat.completions.runTools({
      model: 'script',
      stream: true,
      messages: user(question),
      tools: [
        {
          type: 'function',
          function: { ...described, parse: JSON.parse, function: ({ city }) => (cities.push(city), 'sunny') },
        },
      ],
    });
    assert.equal(await runner.finalContent(), sunny);
    assert.deepEqual(cities, ['Paris']);
  });
  await check('openai: stopped', async () => {
    const endless = { model: 'script', messages: user('never stop'), stream: true };
    const stream = await openai.chat.completions.create(endless);
    let heard = 0;
    for await (const chunk of stream) {
      if (chunk.choices[0]?.delta?.content && ++heard === 5) stream.controller.abort();
    }
    assert.ok(heard >= 5 && heard < 1000);
  });
  await check('openai: an error', async () => {
    assert.equal(await status(openai.chat.completions.create({ model: 'script', messages: user('fail please') })), 400);
  });
  const flat = [{ type: 'function', strict: false, ...described }];
  await check('openai responses: a tool by the id of the answer before', async () => {
    const first = await openai.responses.create({ model: 'script', input: question, tools: flat, store: true });
    const call = first.output.find((item) => item.type === 'function_call');
    assert.deepEqual(JSON.parse(call.arguments), { city: 'Paris' });
    const second = await openai.responses.create({
      model: 'script',
      previous_response_id: first.id,
      input: [{ type: 'function_call_output', call_id: call.call_id, output: 'sunny' }],
      tools: flat,
    });
    assert.equal(second.output_text, sunny);
    assert.equal(second.previous_response_id, first.id);
    assert.equal((await openai.responses.retrieve(second.id)).output_text, sunny);
    await openai.responses.delete(second.id);
    assert.equal(await status(openai.responses.retrieve(second.id)), 404);
    const gone = openai.responses.create({ model: 'script', previous_response_id: second.id, input: 'hello' });
    assert.equal(await status(gone), 400);
  });
  await check('openai responses: as it comes, and stopped', async () => {
    const stream = openai.responses.stream({ model: 'script', input: 'hello' });
    assert.equal((await stream.finalResponse()).output_text, 'Hello there.');
    const endless = await openai.responses.create({ model: 'script', input: 'never stop', stream: true });
    let heard = 0;
    for await (const event of endless) {
      if (event.type === 'response.output_text.delta' && ++heard === 5) endless.controller.abort();
    }
    assert.ok(heard >= 5 && heard < 1000);
  });
}

async function withAi() {
  const settings = { apiKey: key, baseURL: base };
  const providers = {
    'openai-compatible': createOpenAICompatible({ name: 'millrace', ...settings })('script'),
    'openai (responses)': createOpenAI(settings)('script'),
    anthropic: createAnthropic(settings)('script'),
  };
  for (const [name, model] of Object.entries(providers)) {
    const cities = [];
    const tools = {
      get_weather: tool({
        description: described.description,
        inputSchema: jsonSchema(parameters),
        execute: async ({ city }) => (cities.push(city), 'sunny'),
      }),
    };
    const asked = { model, tools, maxRetries: 0, stopWhen: stepCountIs(3) };
    await check(`ai with ${name}: a tool and the answer to it`, async () => {
      const answer = await generateText({ ...asked, prompt: question });
      assert.equal(answer.text, sunny);
      assert.deepEqual(cities, ['Paris']);
    });
    await check(`ai with ${name}: as it comes`, async () => {
      const stream = streamText({ ...asked, prompt: question });
      const kinds = new Set();
      for await (const part of stream.fullStream) kinds.add(part.type);
      assert.ok(kinds.has('tool-call') && kinds.has('tool-result') && kinds.has('text-delta') && !kinds.has('error'));
      assert.equal(await stream.text, sunny);
    });
    await check(`ai with ${name}: stopped, and an error`, async () => {
      const abort = new AbortController();
      const stream = streamText({ model, prompt: 'never stop', maxRetries: 0, abortSignal: abort.signal });
      let heard = 0;
      for await (const part of stream.fullStream) if (part.type === 'text-delta' && ++heard === 5) abort.abort();
      assert.ok(heard >= 5 && heard < 1000);
      assert.equal(await status(generateText({ model, prompt: 'fail please', maxRetries: 0 })), 400);
    });
  }
}

async function withAnthropic() {
  const anthropic = new Anthropic({ baseURL: address, apiKey: key, maxRetries: 0 });
  const tools = [{ name: described.name, description: described.description, input_schema: parameters }];
  const asked = { model: 'script', max_tokens: 1000, tools };
  await check('@anthropic-ai/sdk: a tool and the answer to it, as they come', async () => {
    const first = await anthropic.messages.stream({ ...asked, messages: user(question) }).finalMessage();
    assert.equal(first.stop_reason, 'tool_use');
    const use = first.content.find((part) => part.type === 'tool_use');
    assert.deepEqual(use.input, { city: 'Paris' });
    const result = { type: 'tool_result', tool_use_id: use.id, content: 'sunny' };
    const messages = [...user(question), { role: 'assistant', content: first.content }, ...user([result])];
    const second = await anthropic.messages.create({ ...asked, messages });
    assert.equal(second.content[0].text, sunny);
    assert.ok((await anthropic.messages.countTokens({ model: 'script', messages })).input_tokens > 10);
  });
  await check('@anthropic-ai/sdk: stopped, and an error', async () => {
    const stream = anthropic.messages.stream({ model: 'script', max_tokens: 100000, messages: user('never stop') });
    let heard = 0;
    stream.on('text', () => ++heard === 5 && stream.abort());
    await assert.rejects(stream.finalMessage());
    assert.ok(heard >= 5 && heard < 1000);
    const failing = anthropic.messages.create({ model: 'script', max_tokens: 10, messages: user('fail please') });
    assert.equal(await status(failing), 400);
  });
}

async function withLangchain() {
  for (const useResponsesApi of [false, true]) {
    const name = `langchain over ${useResponsesApi ? 'responses' : 'chats'}`;
    const configuration = { baseURL: base };
    const chat = new ChatOpenAI({ model: 'script', apiKey: key, maxRetries: 0, useResponsesApi, configuration });
    await check(`${name}: a tool and the answer to it`, async () => {
      const bound = chat.bindTools(functions);
      const first = await bound.invoke(question);
      assert.deepEqual(first.tool_calls[0].args, { city: 'Paris' });
      const result = new ToolMessage({ content: 'sunny', tool_call_id: first.tool_calls[0].id });
      assert.equal((await bound.invoke([new HumanMessage(question), first, result])).text, sunny);
    });
    await check(`${name}: as it comes, stopped, and an error`, async () => {
      let text = '';
      for await (const piece of await chat.stream('hello')) text += piece.text;
      assert.equal(text, 'Hello there.');
      const abort = new AbortController();
      let heard = 0;
      await assert.rejects(async () => {
        for await (const piece of await chat.stream('never stop', { signal: abort.signal }))
          if (piece.text && ++heard === 5) abort.abort();
      });
      assert.ok(heard >= 5 && heard < 1000);
      assert.equal(await status(chat.invoke('fail please')), 400);
    });
  }
}

async function withOllama() {
  const ollama = new Ollama({ host: address, headers: { Authorization: `Bearer ${key}` } });
  await check('ollama: a tool and the answer to it', async () => {
    const first = await ollama.chat({ model: 'script', messages: user(question), tools: functions });
    assert.deepEqual(first.message.tool_calls[0].function.arguments, { city: 'Paris' });
    const given = { role: 'tool', tool_name: 'get_weather', content: 'sunny' };
    const second = await ollama.chat({
      model: 'script',
      messages: [...user(question), first.message, given],
      tools: functions,
    });
    assert.equal(second.message.content, sunny);
  });
  await check('ollama: as it comes, stopped, and an error', async () => {
    let text = '';
    for await (const part of await ollama.chat({ model: 'script', messages: user('hello'), stream: true }))
      text += part.message.content;
    assert.equal(text, 'Hello there.');
    let heard = 0;
    await assert.rejects(async () => {
      for await (const part of await ollama.chat({ model: 'script', messages: user('never stop'), stream: true }))
        if (part.message.content && ++heard === 5) ollama.abort();
    });
    assert.ok(heard >= 5 && heard < 1000);
    assert.equal(await status(ollama.chat({ model: 'script', messages: user('fail please') })), 400);
  });
}

await withOpenai();
await withAi();
await withAnthropic();
await withLangchain();
await withOllama();
done();
