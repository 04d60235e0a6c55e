// Chat with the real model: streaming, figures, tokens, stopping, errors.
import { answered, ask, barriers, check, fresh, real, setting, shot, test } from './lib.mjs';

export async function chat(page, server) {
  await test('the page comes with a strict policy', async () => {
    const head = (await fetch(server.url)).headers.get('content-security-policy') ?? '';
    check(head.includes("default-src 'none'") && head.includes("script-src 'self'"), `the policy is '${head}'`);
    check(!head.includes('unsafe'), `the policy allows unsafe things: ${head}`);
    check(head.includes("require-trusted-types-for 'script'"), 'HTML text could become elements');
  });

  await test('an unchanged file is not sent twice', async () => {
    const first = await fetch(`${server.url}/app.js`);
    const again = await fetch(`${server.url}/app.js`, { headers: { 'If-None-Match': first.headers.get('etag') } });
    check(again.status === 304, `the second answer is ${again.status}`);
  });

  await test('fonts and licences come with the page', async () => {
    const font = await fetch(`${server.url}/KaTeX_Main-Regular.woff2`);
    check(font.ok && font.headers.get('content-type') === 'font/woff2', `the font is ${font.status}`);
    const text = await (await fetch(`${server.url}/licences.txt`)).text();
    for (const name of ['preact', 'markdown-it', 'katex', 'highlight.js', 'lowlight']) {
      check(text.includes(`${name} `), `no licence of ${name}`);
    }
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

  await test('the card of a token is never cut off', async () => {
    const tokens = page.getByRole('option');
    const count = await tokens.count();
    for (const size of [
      { width: 360, height: 480 },
      { width: 1280, height: 860 },
    ]) {
      await page.setViewportSize(size);
      // On a narrow screen the conversations slide away first.
      await page.waitForFunction(
        () => innerWidth > 768 || getComputedStyle(document.querySelector('.side')).visibility === 'hidden',
      );
      for (let n = 0; n < count; n += 3) {
        await tokens.nth(n).focus();
        await page.waitForSelector(`[data-n="${n}"][aria-selected=true]`);
        await page.waitForSelector('.card li.taken');
        const seen = await page.evaluate(() => {
          const card = document.querySelector('.card');
          const box = card.getBoundingClientRect();
          card.style.pointerEvents = 'auto';
          // Each corner belongs to the card: it is inside the window, and nothing lies over it or cuts it.
          const corners = [
            [box.left + 14, box.top + 14],
            [box.right - 14, box.top + 14],
            [box.left + 14, box.bottom - 14],
            [box.right - 14, box.bottom - 14],
          ];
          const whole = corners.every(([x, y]) => card.contains(document.elementFromPoint(x, y)));
          card.style.pointerEvents = '';
          return { whole, box: [box.left, box.top, box.right, box.bottom].map(Math.round) };
        });
        if (!seen.whole) await page.setViewportSize({ width: 1280, height: 860 });
        check(seen.whole, `token ${n} at ${size.width} pixels: the card is at ${seen.box}`);
      }
    }
  });

  await test('stop ends an answer', async () => {
    await setting(page, 'Longest answer', 900);
    await fresh(page);
    // A stream that never ends by itself, so that there is always something to stop.
    await page.route('**/v1/chat/completions', (route) => {
      const body = { ...route.request().postDataJSON(), ignore_eos: true };
      return route.continue({ postData: JSON.stringify(body) });
    });
    await ask(page, 'Tell me everything.');
    await page.waitForFunction(
      () => (document.querySelector('article.answer .markdown')?.textContent ?? '').length > 20,
    );
    await page.keyboard.press('Escape');
    await answered(page, 1);
    check((await page.textContent('article.answer .state')) === 'Stopped.', 'it does not say that it stopped');
    await real(page);
    await setting(page, 'Longest answer', 32);
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
    await fresh(page);
    await ask(page, 'Once more');
    const alert = await page.waitForSelector('article.answer .state.bad');
    const text = await alert.textContent();
    check(text.includes('Too many wait already.') && text.includes('7 s'), `it says '${text}'`);
    await real(page);
    await page.getByRole('button', { name: 'Regenerate' }).click();
    await page.waitForSelector('article.answer .figures');
    await answered(page, 1);
    check((await page.locator('.versions').count()) === 0, 'the answer that never came is kept as a version');
  });

  await test('a stream that breaks off is no whole answer', async () => {
    await page.route('**/v1/chat/completions', (route) =>
      route.fulfill({
        contentType: 'text/event-stream',
        body: `data: ${JSON.stringify({ choices: [{ index: 0, delta: { content: 'Half of' } }] })}\n\n`,
      }),
    );
    await fresh(page);
    await ask(page, 'All of it, please');
    const alert = await page.waitForSelector('article.answer .state.bad');
    check(/ended before/.test(await alert.textContent()), 'it does not say what happened');
    check((await page.textContent('article.answer .markdown')) === 'Half of', 'what came is gone');
    await real(page);
  });
}
