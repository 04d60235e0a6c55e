// What a person has set for the answers to come. null: as the server has it.
import { recall, remember, Store } from './store';

export interface Settings {
  temperature: number | null;
  top_p: number | null;
  top_k: number | null;
  min_p: number | null;
  repetition_penalty: number | null;
  max_tokens: number | null;
  seed: number | null;
  probabilities: boolean;
  reasoning: '' | 'none' | 'low' | 'medium' | 'high';
  format: 'text' | 'json' | 'schema';
  schema: string;
  tools: string;
}

export const kDefaults: Settings = {
  temperature: null,
  top_p: null,
  top_k: null,
  min_p: null,
  repetition_penalty: null,
  max_tokens: null,
  seed: null,
  probabilities: true,
  reasoning: '',
  format: 'text',
  schema: '',
  tools: '',
};
const kAlternatives = 5;

export const settings = new Store<Settings>({ ...kDefaults, ...recall<Partial<Settings>>('millrace.settings', {}) });
settings.watch(() => remember('millrace.settings', settings.value));

function problemOf(failed: unknown): string {
  return failed instanceof Error ? failed.message : String(failed);
}

// Why a text cannot be used as a JSON schema, or as a list of tools; empty: it can.
export function schemaProblem(text: string): string {
  try {
    const value = JSON.parse(text) as unknown;
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? '' : 'A schema is a JSON object.';
  } catch (failed) {
    return `This is no JSON: ${problemOf(failed)}`;
  }
}
export function toolsProblem(text: string): string {
  if (!text.trim()) return '';
  try {
    const value = JSON.parse(text) as unknown;
    const list = Array.isArray(value) && value.every((one) => typeof one === 'object' && one !== null);
    return list ? '' : 'Tools are a JSON list of objects, as OpenAI’s API has them.';
  } catch (failed) {
    return `This is no JSON: ${problemOf(failed)}`;
  }
}

// The fields of a request that come from the settings. Throws a sentence where they make no sense.
export function fieldsOf(all: Settings): Record<string, unknown> {
  const { probabilities, reasoning, format, schema, tools, ...sampling } = all;
  const body: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(sampling)) if (value !== null) body[name] = value;
  if (probabilities) Object.assign(body, { logprobs: true, top_logprobs: kAlternatives });
  if (reasoning) body.reasoning_effort = reasoning;
  if (format === 'json') body.response_format = { type: 'json_object' };
  if (format === 'schema') {
    const problem = schemaProblem(schema);
    if (problem) throw new Error(`The schema in the settings cannot be used. ${problem}`);
    body.response_format = { type: 'json_schema', json_schema: { name: 'answer', schema: JSON.parse(schema) as object } };
  }
  const problem = toolsProblem(tools);
  if (problem) throw new Error(`The tools in the settings cannot be used. ${problem}`);
  const list = tools.trim() ? (JSON.parse(tools) as unknown[]) : [];
  if (list.length > 0) body.tools = list;
  return body;
}
