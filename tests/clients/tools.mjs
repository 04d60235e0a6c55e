// Real clients and calls of tools: node tools.mjs BASE_URL KEY. The model writes nonsense, which the server keeps to
// the tools: every call must be one the client can make, and the talk goes on with what the tool said.
import assert from 'node:assert/strict';
import OpenAI from 'openai';
import { generateText, streamText, tool, jsonSchema } from 'ai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { ChatOpenAI } from '@langchain/openai';
import { check, done } from './check.mjs';

const [, , base, key] = process.argv;
const parameters = {
  type: 'object',
  properties: { city: { enum: ['Paris', 'Rome'] }, days: { type: 'integer', minimum: 1, maximum: 9 } },
  required: ['city', 'days'],
  additionalProperties: false,
};
const tools = [{ type: 'function', function: { name: 'get_weather', description: 'Weather.', parameters } }];
const messages = [{ role: 'user', content: 'What is the weather?' }];
const openai = new OpenAI({ baseURL: base, apiKey: key, maxRetries: 0 });
const model = (await openai.models.list()).data[0].id;
const asked = {
  model,
  messages,
  tools,
  tool_choice: 'required',
  parallel_tool_calls: false,
  max_tokens: 200,
  seed: 5,
};

function fits(given) {
  assert.ok(['Paris', 'Rome'].includes(given.city));
  assert.ok(Number.isInteger(given.days) && given.days >= 1 && given.days <= 9);
}

await check('openai: a call, the tool, and the answer to it', async () => {
  const first = await openai.chat.completions.create(asked);
  const { message, finish_reason } = first.choices[0];
  assert.equal(finish_reason, 'tool_calls');
  assert.equal(message.content, null);
  assert.equal(message.tool_calls.length, 1);
  assert.equal(message.tool_calls[0].function.name, 'get_weather');
  fits(JSON.parse(message.tool_calls[0].function.arguments));
  const second = await openai.chat.completions.create({
    ...asked,
    tool_choice: 'none',
    max_tokens: 8,
    messages: [...messages, message, { role: 'tool', tool_call_id: message.tool_calls[0].id, content: 'Sunny.' }],
  });
  assert.equal(second.choices[0].message.tool_calls, undefined);
});

await check('openai: the stream helper puts the call together', async () => {
  const whole = await openai.chat.completions.create(asked);
  const stream = openai.beta.chat.completions.stream(asked);
  const { choices } = await stream.finalChatCompletion();
  assert.equal(choices[0].finish_reason, 'tool_calls');
  const called = choices[0].message.tool_calls[0];
  assert.equal(called.function.arguments, whole.choices[0].message.tool_calls[0].function.arguments);
  assert.match(called.id, /^call_/);
});

await check('openai: runTools calls the function', async () => {
  let given;
  const runner = openai.beta.chat.completions.runTools({
    ...asked,
    tool_choice: { type: 'function', function: { name: 'get_weather' } },
    tools: [
      {
        type: 'function',
        function: {
          name: 'get_weather',
          parameters,
          parse: JSON.parse,
          function: (values) => {
            given = values;
            return 'Sunny.';
          },
        },
      },
    ],
  });
  await runner.done();
  fits(given);
});

const provider = createOpenAICompatible({ name: 'millrace', baseURL: base, apiKey: key });
const weather = tool({ description: 'Weather.', parameters: jsonSchema(parameters) });

await check('ai: generateText and streamText give calls', async () => {
  const settings = {
    model: provider(model),
    messages,
    tools: { get_weather: weather },
    toolChoice: { type: 'tool', toolName: 'get_weather' },
    maxTokens: 200,
    seed: 5,
    maxRetries: 0,
  };
  const whole = await generateText(settings);
  assert.ok(whole.toolCalls.length >= 1);
  for (const call of whole.toolCalls) fits(call.args);
  const stream = streamText(settings);
  for await (const part of stream.fullStream) assert.notEqual(part.type, 'error');
  const calls = await stream.toolCalls;
  assert.deepEqual(
    calls.map((call) => call.args),
    whole.toolCalls.map((call) => call.args),
  );
});

await check('langchain: bindTools', async () => {
  const chat = new ChatOpenAI({
    model,
    apiKey: key,
    maxTokens: 200,
    maxRetries: 0,
    configuration: { baseURL: base },
    modelKwargs: { seed: 5 },
  }).bindTools(tools, { tool_choice: 'required', parallel_tool_calls: false });
  const answer = await chat.invoke('What is the weather?');
  assert.equal(answer.tool_calls.length, 1);
  fits(answer.tool_calls[0].args);
});

done();
