// The page in a real browser, against the real server: node browser.mjs MILLRACE. Prints one line per test for ./test.
// With SHOTS=FOLDER it leaves screenshots there.
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { chromium } from 'playwright-core';

const program = process.argv[2];
const shots = process.env.SHOTS;
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const kPatience = 120_000;
let broken = 0;

// A server of the shipped model on a free port.
async function serve(...flags) {
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
    const ready = await fetch(`${url}/ready`, { headers: { Authorization: 'Bearer secret-key' } });
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

function check(condition, what) {
  if (!condition) throw new Error(what);
}

async function test(name, body) {
  try {
    await body();
    console.log(`ok - ${name}`);
  } catch (problem) {
    ++broken;
    console.log(`not ok - ${name}\n  ${String(problem?.message ?? problem).split('\n').slice(0, 8).join('\n  ')}`);
  }
}

// What axe finds that would keep somebody from using the page.
async function barriers(page, where) {
  await page.evaluate(axe);
  const found = await page.evaluate(async () => {
    const result = await window.axe.run(document, { resultTypes: ['violations'] });
    return result.violations
      .filter((v) => v.impact === 'serious' || v.impact === 'critical')
      .map((v) => `${v.id}: ${v.nodes.map((n) => n.target.join(' ')).slice(0, 3).join(', ')}`);
  });
  check(found.length === 0, `${where}: ${found.join('; ')}`);
}

async function ask(page, text) {
  await page.fill('#question', text);
  await page.press('#question', 'Enter');
}

async function answered(page, count = 1) {
  await page.waitForFunction(
    (n) => document.querySelectorAll('article.answer .deeds').length === n,
    count,
    { timeout: kPatience },
  );
}

async function setting(page, name, value) {
  await page.getByRole('button', { name: 'Settings', exact: true }).click();
  await page.getByRole('spinbutton', { name }).fill(String(value));
  await page.getByRole('button', { name: 'Close settings' }).click();
}

async function shot(page, name) {
  if (shots) await page.screenshot({ path: `${shots}/${name}.png` });
}

// A stream with this text, in the place of the model's.
async function pretend(page, text) {
  const chunk = (delta, finish) => {
    const choice = { index: 0, delta, finish_reason: finish };
    return `data: ${JSON.stringify({ choices: [choice] })}\n\n`;
  };
  const body = `${chunk({ role: 'assistant', content: text }, null)}${chunk({}, 'stop')}data: [DONE]\n\n`;
  await page.route('**/v1/chat/completions', (route) =>
    route.fulfill({ contentType: 'text/event-stream', body }),
  );
}

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: process.getuid?.() === 0 ? ['--no-sandbox'] : [],
});
const server = await serve();
const messages = [];
const strangers = [];

async function open(options = {}, url = server.url) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 860 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(kPatience);
  page.on('console', (message) => message.type() === 'error' && messages.push(message.text()));
  page.on('pageerror', (problem) => messages.push(problem.message));
  page.on('request', (request) => request.url().startsWith(url) || strangers.push(request.url()));
  await page.goto(url);
  await page.waitForSelector('#question');
  return page;
}

const page = await open();

await test('the page comes with a strict policy', async () => {
  const head = (await fetch(server.url)).headers.get('content-security-policy') ?? '';
  check(head.includes("default-src 'none'") && head.includes("script-src 'self'"), `the policy is '${head}'`);
  check(!head.includes('unsafe'), `the policy allows unsafe things: ${head}`);
});

await test('an unchanged file is not sent twice', async () => {
  const first = await fetch(`${server.url}/app.js`);
  const again = await fetch(`${server.url}/app.js`, { headers: { 'If-None-Match': first.headers.get('etag') } });
  check(again.status === 304, `the second answer is ${again.status}`);
});

await test('chat: an answer streams in, with its figures', async () => {
  await setting(page, 'Longest answer', 48);
  await ask(page, 'Tell me about a mill.');
  await answered(page);
  const text = await page.textContent('article.answer .markdown');
  check(text.trim().length > 0, 'the answer is empty');
  const figures = await page.textContent('article.answer .figures');
  check(/TTFT.*ms|TTFT.*s/.test(figures), `no TTFT in '${figures}'`);
  check(/tokens\/s/.test(figures) && /cached/.test(figures), `not all figures in '${figures}'`);
  await shot(page, 'chat');
});

await test('the next turn finds its history in the cache', async () => {
  await ask(page, 'And then?');
  await answered(page, 2);
  const figures = await page.locator('article.answer .figures').last().textContent();
  const cached = figures.match(/cached(\d+) of (\d+)/);
  check(cached && Number(cached[1]) > 0, `nothing cached: '${figures}'`);
});

await test('token view: probabilities on hover and by keyboard', async () => {
  await page.getByRole('button', { name: 'Tokens', exact: true }).last().click();
  const tokens = page.getByRole('option');
  check((await tokens.count()) > 3, 'too few tokens');
  await tokens.nth(1).hover();
  await page.waitForSelector('.card li.taken');
  check(/%/.test(await page.textContent('.card')), 'no probability is shown');
  await tokens.nth(1).focus();
  await page.keyboard.press('ArrowRight');
  const active = await page.evaluate(() => document.activeElement?.getAttribute('data-n'));
  check(active === '2', `the arrow key went to ${active}`);
  await shot(page, 'tokens');
  await barriers(page, 'token view');
});

await test('regenerate and edit ask again', async () => {
  await page.getByRole('button', { name: 'Regenerate' }).last().click();
  await answered(page, 2);
  await page.locator('article.question').first().hover();
  await page.getByRole('button', { name: 'Edit this question' }).first().click();
  await page.getByRole('textbox', { name: 'Edit the question' }).fill('Tell me about a river.');
  await page.getByRole('button', { name: 'Ask this instead' }).click();
  await answered(page, 1);
  check((await page.locator('article.question').count()) === 1, 'what came after the edited question is still there');
  check((await page.textContent('article.question')).includes('river'), 'the question is the old one');
});

await test('reload keeps conversations', async () => {
  await page.getByRole('button', { name: 'New conversation' }).click();
  await ask(page, 'Another subject');
  await answered(page, 1);
  const before = await page.textContent('article.answer .markdown');
  await page.reload();
  await page.waitForSelector('.turns');
  check((await page.locator('.list li').count()) === 2, 'not both conversations are listed');
  const asked = await page.textContent('article.question');
  check(asked.includes('Another subject'), `the open one is another: ${asked}`);
  check((await page.textContent('article.answer .markdown')) === before, 'the answer is not what it was');
});

await test('stop ends an answer', async () => {
  await setting(page, 'Longest answer', 900);
  await page.getByRole('button', { name: 'New conversation' }).click();
  // A stream that never ends by itself, so that there is always something to stop.
  await page.route('**/v1/chat/completions', (route) => {
    const body = { ...route.request().postDataJSON(), ignore_eos: true };
    return route.continue({ postData: JSON.stringify(body) });
  });
  await ask(page, 'Tell me everything.');
  await page.waitForFunction(() => (document.querySelector('article.answer .markdown')?.textContent ?? '').length > 20);
  await page.keyboard.press('Escape');
  await answered(page, 1);
  check((await page.textContent('article.answer .state')) === 'Stopped.', 'it does not say that it stopped');
  await page.unroute('**/v1/chat/completions');
});

await test('what a model writes cannot become markup', async () => {
  await pretend(page, [
    '<img src=x onerror="window.hurt=1"> <script>window.hurt=1</script>',
    '[link](javascript:window.hurt=1) [fine](https://example.org/a?b=1) ![picture](https://example.org/p.png)',
    '`<b>` **<i>x</i>** | a | b |',
    '| <u>a</u> | b |\n|---|---|\n| <svg onload=alert(1)> | 2 |',
    '```html\n<script>window.hurt=1</script>\n```',
    `${'> '.repeat(400)}deep`,
    `${'*_~['.repeat(20000)}`,
  ].join('\n\n'));
  await page.getByRole('button', { name: 'New conversation' }).click();
  await ask(page, 'Try to hurt me.');
  await answered(page, 1);
  const made = await page.evaluate(() => {
    const inside = document.querySelector('article.answer .markdown');
    const tags = [...inside.querySelectorAll('img,script,b,i,u,svg:not(.icon),iframe')].map((e) => e.tagName);
    return { tags, hurt: window.hurt, links: [...inside.querySelectorAll('a')].map((a) => a.href) };
  });
  check(made.hurt === undefined && made.tags.length === 0, `markup came through: ${JSON.stringify(made)}`);
  check(made.links.length > 0 && made.links.every((l) => l.startsWith('https://example.org/')), String(made.links));
  await page.unroute('**/v1/chat/completions');
});

await test('errors are shown where the answer would be', async () => {
  await page.route('**/v1/chat/completions', (route) =>
    route.fulfill({
      status: 429,
      headers: { 'Retry-After': '7' },
      contentType: 'application/json',
      body: JSON.stringify({ error: { message: 'Too many wait already.' } }),
    }),
  );
  await ask(page, 'Once more');
  const alert = await page.waitForSelector('article.answer .state.bad');
  const text = await alert.textContent();
  check(text.includes('Too many wait already.') && text.includes('7 s'), `it says '${text}'`);
  await page.unroute('**/v1/chat/completions');
});

await test('live view moves', async () => {
  const ask = { messages: [{ role: 'user', content: 'A story about water.' }], max_tokens: 700, ignore_eos: true };
  const { data } = await (await fetch(`${server.url}/v1/models`)).json();
  const load = Promise.all(
    [1, 2, 3].map((seed) =>
      fetch(`${server.url}/v1/chat/completions`, {
        method: 'POST',
        headers: { 'Content-Type': 'application/json' },
        body: JSON.stringify({ ...ask, seed, model: data[0].id }),
      }).then((answer) => answer.text()),
    ),
  );
  await page.click('.views a[href="#live"]');
  await page.waitForSelector('.tile b');
  const number = (n) => page.evaluate((i) => document.querySelectorAll('.tile b')[i].textContent, n);
  await page.waitForFunction(() => Number(document.querySelectorAll('.tile b')[2].textContent) > 0);
  await page.waitForFunction(() => Number(document.querySelectorAll('.tile b')[0].textContent.replace(',', '')) > 0);
  await page.waitForFunction(() => /^[1-9]/.test(document.querySelector('.panel.wide .keys b')?.textContent ?? ''));
  check((await number(0)) !== '0', 'nothing is being written');
  const drawn = await page.evaluate(() => {
    const map = document.querySelector('canvas.map');
    const pixels = map.getContext('2d').getImageData(0, 0, map.width, map.height).data;
    return new Set(new Uint32Array(pixels.buffer)).size;
  });
  check(drawn >= 3, `the map of pages has ${drawn} colours`);
  await shot(page, 'live');
  await load;
  await page.waitForFunction(() => document.querySelectorAll('.tile b')[2].textContent === '0');
  await barriers(page, 'live view');
});

await test('no barriers in chat and settings, light and dark', async () => {
  await page.click('.views a[href="#"]');
  await page.locator('.list li button').first().click();
  await page.getByRole('button', { name: 'Settings', exact: true }).click();
  for (const colorScheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme });
    await barriers(page, colorScheme);
    await shot(page, `settings-${colorScheme}`);
  }
  await page.getByRole('button', { name: 'Close settings' }).click();
});

await test('phone: everything fits, conversations open as a drawer', async () => {
  const phone = await open({ viewport: { width: 375, height: 720 }, hasTouch: true, colorScheme: 'dark' });
  const wide = () => phone.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
  await setting(phone, 'Longest answer', 24);
  await ask(phone, 'Hello there, how are you today?');
  await answered(phone);
  check((await wide()) <= 0, `chat is ${await wide()} pixels too wide`);
  await shot(phone, 'phone-chat');
  await phone.getByRole('button', { name: 'Conversations' }).click();
  await phone.waitForSelector('.side.shown');
  check(await phone.getByRole('button', { name: 'New conversation' }).isVisible(), 'the drawer is empty');
  await barriers(phone, 'drawer');
  await phone.keyboard.press('Escape');
  await phone.click('.views a[href="#live"]');
  await phone.waitForSelector('.tile b');
  check((await wide()) <= 0, `live view is ${await wide()} pixels too wide`);
  await shot(phone, 'phone-live');
  await barriers(phone, 'phone, live view');
  await phone.context().close();
});

await test('a key is asked for where the server wants one', async () => {
  const locked = await serve('--api-key', 'secret-key');
  const guest = await open({}, locked.url);
  await guest.waitForSelector('dialog[open]');
  await guest.getByLabel('Key', { exact: true }).fill('secret-key');
  await guest.getByRole('button', { name: 'Use this key' }).click();
  await guest.waitForSelector('.model:not(.bad)');
  await setting(guest, 'Longest answer', 8);
  await ask(guest, 'Hello');
  await answered(guest);
  check((await guest.locator('article.answer .state.bad').count()) === 0, 'the answer failed');
  await guest.context().close();
  await locked.end();
});

await test('nothing was asked of anybody else, and nothing went wrong unseen', async () => {
  check(strangers.length === 0, `requests to ${strangers.slice(0, 3).join(', ')}`);
  const unexpected = messages.filter((text) => !/status of (401|429)/.test(text));
  check(unexpected.length === 0, unexpected.slice(0, 5).join('; '));
});

await browser.close();
await server.end();
process.exit(broken > 0 ? 1 : 0);
