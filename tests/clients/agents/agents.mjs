// Libraries for agents against a server that says what a script has: node agents.mjs BASE_URL KEY. Each runs a tool and
// goes on with what it gave, hears an answer as it comes, stops one, and is told of an error.
import assert from 'node:assert/strict';
import { Agent, Runner, tool, OpenAIProvider } from '@openai/agents';
import { OpenAI } from '@llamaindex/openai';
import { FunctionTool } from 'llamaindex';
import { z } from 'zod';
import { check, done } from '../check.mjs';

const [, , base, key] = process.argv;
// The Agents SDK, over Responses as by default, and over chats.
for (const useResponses of [true, false]) {
  const kind = `@openai/agents over ${useResponses ? 'responses' : 'chats'}`;
  const modelProvider = new OpenAIProvider({ apiKey: key, baseURL: base, useResponses });
  const runner = new Runner({ modelProvider, tracingDisabled: true });
  const asked = [];
  const weather = tool({
    name: 'get_weather',
    description: 'The weather of a city.',
    parameters: z.object({ city: z.string() }),
    execute: async ({ city }) => {
      asked.push(city);
      return 'sunny';
    },
  });
  const agent = new Agent({ name: 'Agent', instructions: 'Be brief.', tools: [weather], model: 'script' });

  await check(`${kind}: a tool and the answer to it`, async () => {
    const done = await runner.run(agent, 'What is the weather?');
    assert.deepEqual(asked, ['Paris']);
    assert.equal(done.finalOutput, 'It is sunny in Paris.');
  });
  await check(`${kind}: as it comes`, async () => {
    const stream = await runner.run(agent, 'What is the weather?', { stream: true });
    const kinds = new Set();
    let text = '';
    for await (const event of stream) {
      kinds.add(event.type === 'run_item_stream_event' ? event.name : event.type);
      if (event.type === 'raw_model_stream_event' && event.data.type === 'output_text_delta') text += event.data.delta;
    }
    await stream.completed;
    assert.ok(kinds.has('tool_called') && kinds.has('tool_output') && kinds.has('message_output_created'));
    assert.equal(text, 'It is sunny in Paris.');
    assert.equal(stream.finalOutput, text);
  });
  await check(`${kind}: stopped`, async () => {
    const abort = new AbortController();
    const stream = await runner.run(agent, 'never stop', { stream: true, signal: abort.signal });
    let heard = 0;
    try {
      for await (const event of stream) {
        if (event.type === 'raw_model_stream_event' && ++heard === 5) abort.abort();
      }
    } catch (failure) {
      assert.match(String(failure?.name ?? failure), /Abort/);
    }
    assert.ok(heard >= 5 && heard < 10000);
  });
  await check(`${kind}: an error`, async () => {
    await assert.rejects(runner.run(agent, 'fail please'), (failure) => {
      assert.equal(failure.status, 400);
      assert.match(failure.message, /nothing to say to this prompt/);
      return true;
    });
  });
}

const llm = new OpenAI({ model: 'script', apiKey: key, baseURL: base, maxRetries: 0, temperature: 0 });
const weather = FunctionTool.from(async ({ city }) => `${city}: sunny`, {
  name: 'get_weather',
  description: 'The weather of a city.',
  parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
});

await check('llamaindex: a tool and the answer to it', async () => {
  const messages = [{ role: 'user', content: 'What is the weather?' }];
  const first = await llm.chat({ messages, tools: [weather] });
  const [call] = first.message.options.toolCall;
  assert.equal(call.name, 'get_weather');
  const input = typeof call.input === 'string' ? JSON.parse(call.input) : call.input;
  assert.deepEqual(input, { city: 'Paris' });
  const result = await weather.call(input);
  const second = await llm.chat({
    messages: [
      ...messages,
      first.message,
      { role: 'user', content: result, options: { toolResult: { id: call.id, result, isError: false } } },
    ],
    tools: [weather],
  });
  assert.equal(second.message.content, 'It is sunny in Paris.');
});
await check('llamaindex: as it comes, and stopped', async () => {
  let text = '';
  for await (const piece of await llm.chat({ messages: [{ role: 'user', content: 'hello' }], stream: true }))
    text += piece.delta;
  assert.equal(text, 'Hello there.');
  let heard = 0;
  for await (const piece of await llm.chat({ messages: [{ role: 'user', content: 'never stop' }], stream: true })) {
    if (piece.delta && ++heard === 5) break;
  }
  assert.equal(heard, 5);
});
await check('llamaindex: an error', async () => {
  await assert.rejects(llm.chat({ messages: [{ role: 'user', content: 'fail please' }] }), (failure) => {
    assert.equal(failure.status, 400);
    return true;
  });
});

done();
