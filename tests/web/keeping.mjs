// Conversations and what is kept of them: versions, names, search, files out and in, files attached.
import { readFileSync } from 'node:fs';
import { answered, ask, check, fileOf, fresh, open, pretend, real, shot, test } from './lib.mjs';

async function downloaded(page, click) {
  const [file] = await Promise.all([page.waitForEvent('download'), click()]);
  return { name: file.suggestedFilename(), text: readFileSync(await file.path(), 'utf8') };
}

async function more(page, title) {
  await page.getByRole('button', { name: `Rename, export or delete ${title}` }).click();
  await page.waitForSelector('dialog[open]');
}

const shown = (page) => page.locator('article.answer .markdown').last().textContent();
const titles = (page) => page.locator('.list .entry').allTextContents();

export async function keeping(page, server) {
  await test('an answer made anew keeps the one before', async () => {
    await pretend(page, 'one');
    await fresh(page);
    await ask(page, 'Count the versions');
    await answered(page, 1);
    await pretend(page, 'follow');
    await ask(page, 'And on?');
    await answered(page, 2);
    await pretend(page, 'two');
    await page.getByRole('button', { name: 'Regenerate' }).first().click();
    await answered(page, 1);
    check((await shown(page)) === 'two', 'the new answer is not shown');
    check(/2 \/ 2/.test(await page.textContent('.versions')), `it says ${await page.textContent('.versions')}`);
    await page.getByRole('button', { name: 'Earlier version' }).click();
    await answered(page, 2);
    check((await page.locator('article.answer .markdown').first().textContent()) === 'one', 'the first answer is gone');
    check((await shown(page)) === 'follow', 'what followed it is gone');
    const focus = await page.evaluate(() => document.activeElement?.getAttribute('aria-label'));
    check(focus === 'Later version', `the focus is at ${focus}`);
    await page.keyboard.press('Enter');
    await answered(page, 1);
    check((await shown(page)) === 'two', 'the second answer is gone');
    await page.reload();
    await page.waitForSelector('.versions');
    await page.getByRole('button', { name: 'Earlier version' }).click();
    await answered(page, 2);
    check((await shown(page)) === 'follow', 'a reload forgot the versions');
    await shot(page, 'versions');
  });

  await test('an edited question keeps the one before', async () => {
    await pretend(page, 'of a river');
    await page.locator('article.question').first().hover();
    await page.getByRole('button', { name: 'Edit this question' }).first().click();
    await page.getByRole('textbox', { name: 'Edit the question' }).fill('Tell me about a river.');
    await page.getByRole('button', { name: 'Ask this instead' }).click();
    await answered(page, 1);
    check((await page.locator('article.question').count()) === 1, 'what came after the edited question is still shown');
    check((await page.textContent('article.question p')).includes('river'), 'the question is the old one');
    await page.locator('article.question').getByRole('button', { name: 'Earlier version' }).click();
    await answered(page, 2);
    check((await page.textContent('article.question p')) === 'Count the versions', 'the old question is gone');
    await real(page);
  });

  await test('regenerate by the model itself', async () => {
    await fresh(page);
    await ask(page, 'Tell me about a mouse.');
    await answered(page, 1);
    await page.getByRole('button', { name: 'Regenerate' }).click();
    await page.waitForSelector('.versions');
    await answered(page, 1);
    check(/2 \/ 2/.test(await page.textContent('.versions')), 'there are no two versions');
  });

  await test('conversations are named anew, by keyboard', async () => {
    await page.locator('.list .entry').first().focus();
    await page.keyboard.press('F2');
    await page.waitForSelector('dialog[open]');
    await page.keyboard.type('The mouse of the mill');
    await page.keyboard.press('Enter');
    await page.waitForSelector('dialog[open]', { state: 'detached' });
    check((await titles(page))[0] === 'The mouse of the mill', `it is called ${(await titles(page))[0]}`);
    await page.reload();
    await page.waitForSelector('.list .entry');
    check((await titles(page)).includes('The mouse of the mill'), 'a reload forgot the name');
  });

  await test('search finds names and what was said', async () => {
    await pretend(page, 'The zebrafish swam below the wheel.');
    await fresh(page);
    await ask(page, 'Which fish?');
    await answered(page, 1);
    await real(page);
    const all = (await titles(page)).length;
    await page.getByRole('searchbox').fill('zebraFISH wheel');
    await page.waitForFunction(() => document.querySelectorAll('.list .entry').length === 1);
    check(/zebrafish/.test((await titles(page))[0]), 'what was found is not shown');
    await shot(page, 'search');
    await page.getByRole('searchbox').fill('mouse of the');
    await page.waitForFunction(() =>
      /mouse of the mill/.test(document.querySelector('.list .entry')?.textContent ?? ''),
    );
    await page.getByRole('searchbox').fill('nothing like it');
    await page.waitForFunction(() => /Nothing was found/.test(document.querySelector('.list').textContent));
    await page.getByRole('searchbox').press('Escape');
    await page.waitForFunction((n) => document.querySelectorAll('.list .entry').length === n, all);
  });

  let exported = '';
  await test('export as JSON and as Markdown', async () => {
    await more(page, 'Which fish?');
    const markdown = await downloaded(page, () => page.getByRole('button', { name: 'Export as Markdown' }).click());
    check(markdown.name === 'which-fish.md', `the file is ${markdown.name}`);
    check(
      /^# Which fish\?\n\n## Question\n\nWhich fish\?\n\n## Answer\n\nThe zebrafish/.test(markdown.text),
      markdown.text,
    );
    const json = await downloaded(page, () => page.getByRole('button', { name: 'Export as JSON' }).click());
    check(JSON.parse(json.text).conversations[0].turns[1].content.includes('zebrafish'), 'the JSON is not whole');
    await page.getByRole('button', { name: 'Cancel' }).click();
    const all = await downloaded(page, () => page.getByRole('button', { name: 'Export all' }).click());
    exported = all.text;
    check(JSON.parse(all.text).conversations.length === (await titles(page)).length, 'not all are exported');
  });

  await test('import reads what was exported, versions and all', async () => {
    const guest = await open(server.url);
    await guest.setInputFiles('[data-import]', fileOf('all.json', exported));
    await guest.waitForSelector('.notice');
    const many = JSON.parse(exported).conversations.length;
    check(
      (await guest.textContent('.notice')).includes(`${many} conversations were imported`),
      'it does not say how many',
    );
    check(JSON.stringify(await titles(guest)) === JSON.stringify(await titles(page)), 'the lists differ');
    await guest.getByRole('button', { name: 'Count the versions', exact: true }).click();
    await answered(guest, 2);
    check((await guest.locator('.versions').count()) === 2, 'versions are missing');
    await guest.context().close();
  });

  await test('a file that is no export is refused, and a hostile one does no harm', async () => {
    const guest = await open(server.url);
    const turn = { id: 'a', role: 'user', content: { evil: 1 }, state: 'done' };
    const chat = { id: 'x', title: '<img src=x onerror=window.hurt=1>', updated: 1, system: '', turns: [] };
    const body = {
      kind: 'millrace-conversations',
      conversations: [{ ...chat, turns: [turn] }, chat, { ...chat, id: '../a' }, 7],
    };
    for (const [name, text, said] of [
      ['a.json', 'not JSON', 'no JSON'],
      ['b.json', '{"kind": "other"}', 'no conversations'],
      ['c.json', JSON.stringify(body), '1 conversation was imported. 3 could not be read.'],
    ]) {
      await guest.setInputFiles('[data-import]', fileOf(name, text));
      await guest.waitForFunction((t) => (document.querySelector('.notice')?.textContent ?? '').includes(t), said);
    }
    await guest.locator('.list .entry').click();
    check((await guest.evaluate(() => window.hurt)) === undefined, 'a name became markup');
    await guest.context().close();
  });

  await test('files are attached as text', async () => {
    const bodies = await pretend(page, 'read');
    await fresh(page);
    const code = 'int mill(void) {\n  return 7; // ```\n}\n';
    await page.setInputFiles('[data-attach]', [fileOf('wheel.c', code), fileOf('notes.md', 'grain')]);
    await page.waitForFunction(() => document.querySelectorAll('.composer .chip').length === 2);
    await shot(page, 'chips');
    await page.getByRole('button', { name: 'Take notes.md off' }).click();
    await page.waitForFunction(() => document.querySelectorAll('.composer .chip').length === 1);
    await ask(page, 'What does it do?');
    await answered(page, 1);
    const sent = bodies[0].messages[0].content;
    check(sent.includes('wheel.c') && sent.includes(code) && sent.endsWith('What does it do?'), `it sent ${sent}`);
    check(sent.includes('````c\n'), 'the fence can be closed by the file');
    check((await page.locator('.composer .chip').count()) === 0, 'the chip is still there');
    await page.locator('article.question .chip').click();
    check((await page.textContent('article.question pre')) === code, 'the file cannot be looked at');
    await real(page);
  });

  await test('files that are too large or no text are refused', async () => {
    await fresh(page);
    for (const [name, text, said] of [
      ['large.txt', 'x'.repeat(300_000), '256 KiB'],
      ['picture.png', Buffer.from([0x89, 0x50, 0x4e, 0x47, 0xff, 0xfe]), 'no text'],
      ['zero.bin', 'a\0b', 'no text'],
    ]) {
      await page.setInputFiles('[data-attach]', fileOf(name, text));
      await page.waitForFunction(
        ([n, t]) => {
          const text = document.querySelector('.notice')?.textContent ?? '';
          return text.includes(n) && text.includes(t);
        },
        [name, said],
      );
    }
    check((await page.locator('.composer .chip').count()) === 0, 'one was attached');
    await page.getByRole('button', { name: 'Dismiss' }).click();
  });

  await test('delete asks first', async () => {
    const before = (await titles(page)).length;
    await more(page, 'Which fish?');
    await page.getByRole('button', { name: 'Delete', exact: true }).click();
    await page.getByRole('button', { name: 'Delete for good' }).click();
    await page.waitForFunction((n) => document.querySelectorAll('.list .entry').length === n, before - 1);
    check(!(await titles(page)).includes('Which fish?'), 'another one was deleted');
  });
}
