// The live view: it moves, it survives a reload, and it shows what the engine did.
import { barriers, check, fileOf, open, serve, setting, ask, answered, shot, test } from './lib.mjs';

// Does something while requests come one after the other, three at a time.
async function underLoad(url, extra, body) {
  let on = true;
  const one = async (seed) => {
    while (on) {
      const answer = await fetch(`${url}/v1/chat/completions`, {
        method: 'POST',
        headers: { 'Content-Type': 'application/json' },
        body: JSON.stringify({ messages: [{ role: 'user', content: 'A story of water.' }], seed: seed++, ...extra }),
      });
      const text = await answer.text();
      check(answer.ok, `a request of the load was answered with ${answer.status}: ${text}`);
    }
  };
  const load = Promise.all([1, 1000, 2000].map(one));
  try {
    await Promise.race([body(), load]);
  } finally {
    on = false;
    await load;
  }
}

const samples = (page) => page.evaluate(() => Number(document.querySelector('.panels')?.dataset.samples ?? 0));

async function colours(page, canvas) {
  return page.evaluate((name) => {
    const map = document.querySelector(name);
    const pixels = map.getContext('2d').getImageData(0, 0, map.width, map.height).data;
    return new Set(new Uint32Array(pixels.buffer)).size;
  }, canvas);
}

export async function live(page, server) {
  await test('live view moves', async () => {
    const tile = (n, pattern) =>
      page.waitForFunction(
        ([i, p]) => new RegExp(p).test(document.querySelectorAll('.tile b')[i].textContent),
        [n, pattern],
      );
    await page.click('.views a[href="#live"]');
    await page.waitForSelector('.tile b');
    await underLoad(server.url, { max_tokens: 300, ignore_eos: true }, async () => {
      await tile(2, '^[1-9]');
      await tile(0, '^[1-9]');
      await page.waitForFunction(() => /^[1-9]/.test(document.querySelector('.panel.wide .keys b')?.textContent ?? ''));
      await page.waitForFunction(() => Number(document.querySelector('.panels').dataset.samples) >= 20);
      const seen = await colours(page, 'canvas.map');
      check(seen >= 3, `the map of pages has ${seen} colours`);
      check((await colours(page, 'canvas.chart')) >= 4, 'the chart is empty');
      await shot(page, 'live');
    });
    await tile(2, '^0$');
    for (const colorScheme of ['light', 'dark']) {
      await page.emulateMedia({ colorScheme });
      await barriers(page, `live view, ${colorScheme}`);
    }
    await shot(page, 'live-dark');
    await page.emulateMedia({ colorScheme: 'light' });
  });

  await test('charts survive a reload and a look at the chat', async () => {
    const before = await samples(page);
    check(before >= 20, `there are ${before} samples`);
    await page.reload();
    await page.waitForSelector('.panels');
    check((await samples(page)) >= before, `${await samples(page)} samples are left of ${before}`);
    await page.waitForFunction((n) => Number(document.querySelector('.panels').dataset.samples) > n + 2, before);
    await page.click('.views a[href="#"]');
    await page.waitForSelector('#question');
    await page.click('.views a[href="#live"]');
    await page.waitForSelector('.panels');
    check((await samples(page)) >= before, 'a look at the chat forgot them');
    await page.click('.views a[href="#"]');
  });

  await test('guesses, answers of a form and cache hits are shown', async () => {
    const guessing = await serve('--speculate', 'ngram,suffix', '--swap', '16M');
    const guest = await open(guessing.url);
    await guest.click('.views a[href="#live"]');
    await guest.waitForSelector('[data-panel=tiers]');
    check(
      /Nothing was guessed/.test(await guest.textContent('[data-panel=speculation]')),
      'it shows guesses before any',
    );
    check(/No answer had to be/.test(await guest.textContent('[data-panel=grammar]')), 'it shows forms before any');
    const words = { type: 'array', items: { enum: ['grain', 'water', 'wheel'] }, minItems: 20, maxItems: 20 };
    const schema = { type: 'object', properties: { words }, required: ['words'], additionalProperties: false };
    const response_format = { type: 'json_schema', json_schema: { name: 'words', schema } };
    const says = (panel, pattern) =>
      guest.waitForFunction(
        ([name, words]) => new RegExp(words).test(document.querySelector(`[data-panel=${name}]`).textContent),
        [panel, pattern],
      );
    await underLoad(guessing.url, { max_tokens: 400, response_format }, async () => {
      await says('speculation', '[1-9]\\S* of [1-9]\\S* guesses kept');
      await says('grammar', '[1-9]\\S* tokens chosen under masks');
      await says('tiers', 'found[1-9]\\S* of [1-9]');
      await says('tiers', 'page store\\d+, of \\d+ put there');
      const said = await guest.textContent('[data-panel=speculation]');
      const [, pass] = said.match(/In all ([\d.]+) tokens a pass/) ?? [];
      check(Number(pass) > 1, `it says '${said}'`);
      await guest.waitForFunction(() => Number(document.querySelector('.panels').dataset.samples) >= 16);
      check((await colours(guest, '[data-panel=speculation] canvas')) >= 4, 'the chart of guesses is empty');
      await guest.evaluate(() => document.querySelector('[data-panel=grammar]').scrollIntoView());
      await shot(guest, 'live-more');
    });
    await barriers(guest, 'guesses');
    await guest.context().close();
    await guessing.end();
  });

  await test('a tenant sees its own share, an operator all', async () => {
    const keys = fileOf('keys', 'ann key-of-ann\nbob key-of-bob\nboss key-of-boss operator\n');
    const shared = await serve('--api-key-file', keys);
    const as = async (key) => {
      const guest = await open(shared.url);
      await guest.waitForSelector('dialog[open]');
      await guest.getByLabel('Key', { exact: true }).fill(key);
      await guest.getByRole('button', { name: 'Use this key' }).click();
      await guest.waitForSelector('[data-state=connected]');
      return guest;
    };
    const written = (guest) =>
      guest.evaluate(() => Number(document.querySelector('.tile small')?.textContent.replace(/\D/g, '') ?? -1));
    const [ann, bob, boss] = [await as('key-of-ann'), await as('key-of-bob'), await as('key-of-boss')];
    await setting(ann, 'Longest answer', 16);
    await ask(ann, 'Hello');
    await answered(ann);
    for (const guest of [ann, bob, boss]) {
      await guest.click('.views a[href="#live"]');
      await guest.waitForSelector('.tile b');
    }
    await ann.waitForFunction(() => /[1-9]/.test(document.querySelector('.tile small').textContent));
    await boss.waitForFunction(() => /[1-9]/.test(document.querySelector('.tile small').textContent));
    check((await written(bob)) === 0, `bob sees ${await written(bob)} tokens of ann's`);
    for (const guest of [ann, bob]) {
      check((await guest.locator('canvas.map, [data-panel]').count()) === 0, 'a tenant sees the cache of all');
      check(/Your own requests/.test(await guest.textContent('.live')), 'it does not say whose figures these are');
    }
    check((await boss.locator('canvas.map').count()) === 1, 'the operator does not see the cache');
    await shot(ann, 'live-tenant');
    await barriers(ann, 'tenant');
    for (const guest of [ann, bob, boss]) await guest.context().close();
    await shared.end();
  });
}
