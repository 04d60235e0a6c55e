// What the tests of the page share: servers, a browser, and ways to wait for what is seen. Nothing here waits for time
// to pass: every wait is for a condition.
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { chromium } from 'playwright-core';

const program = process.argv[2];
const shots = process.env.SHOTS;
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
export const kPatience = 60_000;
export const folder = mkdtempSync(join(tmpdir(), 'millrace-page-'));
process.on('exit', () => rmSync(folder, { recursive: true, force: true }));
let broken = 0;
export const failures = () => broken;

export function fileOf(name, text) {
  const path = join(folder, name);
  writeFileSync(path, text);
  return path;
}

// A server of the shipped model, on a free port unless flags say another.
export async function serve(...flags) {
  const child = spawn(program, ['serve', '--port', '0', '-c', '1024', '-np', '4', ...flags], {
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let said = '';
  const url = await new Promise((found, failed) => {
    child.stderr.on('data', (data) => {
      said += data;
      const match = said.match(/serving (http:\S+)/);
      if (match) found(match[1]);
    });
    child.on('exit', (code) => failed(new Error(`the server ended with ${code}: ${said}`)));
  });
  for (;;) {
    const ready = await fetch(`${url}/ready`);
    if (ready.ok) break;
    await new Promise((later) => setTimeout(later, 100));
  }
  const end = () =>
    new Promise((ended) => {
      child.removeAllListeners('exit');
      child.on('exit', ended);
      child.kill('SIGKILL');
    });
  return { url, end };
}

export function check(condition, what) {
  if (!condition) throw new Error(what);
}

export async function test(name, body) {
  if (process.env.ONLY && !name.includes(process.env.ONLY)) return;
  const began = Date.now();
  try {
    await body();
    console.log(`ok - ${name}`);
    if (process.env.VERBOSE) console.log(`  ${((Date.now() - began) / 1000).toFixed(1)} s`);
  } catch (problem) {
    ++broken;
    const text = process.env.VERBOSE ? problem?.stack : problem?.message;
    console.log(
      `not ok - ${name}\n  ${String(text ?? problem)
        .split('\n')
        .slice(0, 12)
        .join('\n  ')}`,
    );
  }
}

// What axe finds that would keep somebody from using the page. Contrast is among what it measures, and must have been.
export async function barriers(page, where) {
  await page.evaluate(axe);
  const { found, measured } = await page.evaluate(async () => {
    const result = await window.axe.run(document, { resultTypes: ['violations', 'passes'] });
    return {
      found: result.violations
        .filter((v) => v.impact === 'serious' || v.impact === 'critical')
        .map(
          (v) =>
            `${v.id}: ${v.nodes
              .map((n) => n.target.join(' '))
              .slice(0, 3)
              .join(', ')}`,
        ),
      measured: result.passes.find((rule) => rule.id === 'color-contrast')?.nodes.length ?? 0,
    };
  });
  check(found.length === 0, `${where}: ${found.join('; ')}`);
  check(measured > 0, `${where}: no contrast was measured`);
}

export async function ask(page, text) {
  await page.fill('#question', text);
  await page.press('#question', 'Enter');
}

export async function answered(page, count = 1) {
  await page.waitForFunction((n) => document.querySelectorAll('article.answer .deeds').length === n, count, {
    timeout: kPatience,
  });
}

export async function settings(page, body) {
  await page.getByRole('button', { name: 'Settings', exact: true }).click();
  await body();
  await page.getByRole('button', { name: 'Close settings' }).click();
}

export async function setting(page, name, value) {
  await settings(page, () => page.getByRole('spinbutton', { name }).fill(String(value)));
}

export async function fresh(page) {
  await page.getByRole('button', { name: 'New conversation' }).click();
  await page.waitForSelector('.welcome');
}

export async function shot(page, name) {
  if (shots) await page.screenshot({ path: `${shots}/${name}.png` });
}

export async function tooWide(page) {
  return page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
}

function streamOf(deltas, finish) {
  const chunk = (delta, end) => `data: ${JSON.stringify({ choices: [{ index: 0, delta, finish_reason: end }] })}\n\n`;
  return `${deltas.map((delta) => chunk(delta, null)).join('')}${chunk({}, finish)}data: [DONE]\n\n`;
}

// Streams in the place of the model's: a text, or a list of deltas. Gives what the page sends, as it is sent.
export async function pretend(page, said, finish = 'stop') {
  const deltas = typeof said === 'string' ? [{ role: 'assistant', content: said }] : said;
  const bodies = [];
  await page.unroute('**/v1/chat/completions');
  await page.route('**/v1/chat/completions', (route) => {
    bodies.push(route.request().postDataJSON());
    return route.fulfill({ contentType: 'text/event-stream', body: streamOf(deltas, finish) });
  });
  return bodies;
}

export async function real(page) {
  await page.unroute('**/v1/chat/completions');
}

// An answer of this text in a conversation of its own.
export async function show(page, said, finish) {
  const bodies = await pretend(page, said, finish);
  await fresh(page);
  await ask(page, 'Show me.');
  await answered(page, 1);
  await real(page);
  return bodies;
}

export const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: process.getuid?.() === 0 ? ['--no-sandbox'] : [],
});
export const messages = [];
export const strangers = [];

export async function open(url, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 860 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(kPatience);
  page.on('console', (message) => message.type() === 'error' && messages.push(message.text()));
  page.on('pageerror', (problem) => messages.push(problem.message));
  page.on(
    'request',
    (request) => /^(blob|data):/.test(request.url()) || request.url().startsWith(url) || strangers.push(request.url()),
  );
  await page.goto(url);
  await page.waitForSelector('#question');
  return page;
}
