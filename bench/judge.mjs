// Another program's opinion of masks: node bench/judge.mjs FILE, with the answers that `millrace bench grammar
// --answers FILE` wrote. Every answer that ended must be valid by ajv (npm install ajv ajv-formats).
import fs from 'node:fs';
import readline from 'node:readline';
import Ajv07 from 'ajv';
import Ajv2020 from 'ajv/dist/2020.js';
import formats from 'ajv-formats';

const validators = new Map();
function validator(schema) {
  const key = JSON.stringify(schema);
  if (validators.has(key)) return validators.get(key);
  const old = typeof schema === 'object' && /draft-0[4-7]/.test(schema.$schema ?? '');
  const ajv = new (old ? Ajv07.default : Ajv2020.default)({ strict: false, logger: false });
  formats.default(ajv);
  let check;
  try {
    const { $schema, $id, id, ...rest } = schema;
    check = ajv.compile(typeof schema === 'object' ? rest : schema);
  } catch (failure) {
    check = failure.message;
  }
  validators.set(key, check);
  return check;
}

const count = { valid: 0, cut: 0, unread: 0, wrong: 0 };
for await (const line of readline.createInterface({ input: fs.createReadStream(process.argv[2]) })) {
  const { schema, answer, ended } = JSON.parse(line);
  const check = ended ? validator(schema) : undefined;
  if (!ended || typeof check === 'string') {
    count[ended ? 'unread' : 'cut'] += 1;
    continue;
  }
  const good = check(JSON.parse(answer));
  count[good ? 'valid' : 'wrong'] += 1;
  if (!good) console.log(JSON.stringify(check.errors[0]), answer.slice(0, 200));
}
console.log(JSON.stringify(count));
process.exit(count.wrong === 0 ? 0 : 1);
