// The light that says whether the server is there: lost, found again, and keys.
import { answered, ask, barriers, check, open, serve, setting, shot, test } from './lib.mjs';

const state = (page, name) => page.waitForSelector(`.model[data-state=${name}]`);

export async function reach() {
  await test('the light goes out with the server and on with the next one', async () => {
    const first = await serve();
    const guest = await open(first.url);
    await state(guest, 'connected');
    check(/stories/.test(await guest.textContent('.model .said')), 'it does not say what model answers');
    await first.end();
    await ask(guest, 'Are you there?');
    await state(guest, 'lost');
    await guest.waitForFunction(() => /again in \d+ s/.test(document.querySelector('.model .said').textContent));
    await guest.waitForSelector('article.answer .state.bad');
    await barriers(guest, 'lost');
    await shot(guest, 'lost');
    const second = await serve('--port', new URL(first.url).port);
    check(second.url === first.url, `the second server is at ${second.url}`);
    await guest.evaluate(() =>
      [...document.querySelectorAll('.model button')].find((b) => b.textContent === 'Try now')?.click(),
    );
    await state(guest, 'connected');
    await setting(guest, 'Longest answer', 8);
    await guest.getByRole('button', { name: 'Regenerate' }).click();
    await guest.waitForSelector('article.answer .figures');
    await answered(guest, 1);
    // Nobody asks anything now: it notices by itself, and comes back by itself.
    await second.end();
    await state(guest, 'lost');
    const third = await serve('--port', new URL(first.url).port);
    await state(guest, 'connected');
    await guest.context().close();
    await third.end();
  });

  await test('a key is asked for where the server wants one, and a wrong one refused', async () => {
    const locked = await serve('--api-key', 'secret-key');
    const guest = await open(locked.url);
    await guest.waitForSelector('dialog[open]');
    await state(guest, 'keyless');
    await guest.getByLabel('Key', { exact: true }).fill('another-key');
    await guest.getByRole('button', { name: 'Use this key' }).click();
    await state(guest, 'refused');
    await guest.waitForSelector('dialog[open]');
    await barriers(guest, 'key refused');
    await shot(guest, 'key');
    await guest.getByRole('button', { name: 'Cancel' }).click();
    check(/key refused/.test(await guest.textContent('.model .said')), 'the light does not say so');
    await guest.getByRole('button', { name: 'Enter key' }).click();
    await guest.getByLabel('Key', { exact: true }).fill('secret-key');
    await guest.getByRole('button', { name: 'Use this key' }).click();
    await state(guest, 'connected');
    await setting(guest, 'Longest answer', 8);
    await ask(guest, 'Hello');
    await answered(guest);
    check((await guest.locator('article.answer .state.bad').count()) === 0, 'the answer failed');
    await guest.context().close();
    await locked.end();
  });
}
