// Who uses the page how: settings, the keyboard alone, a narrow screen, light and dark.
import {
  answered,
  ask,
  barriers,
  check,
  fileOf,
  fresh,
  open,
  pretend,
  setting,
  settings,
  shot,
  test,
  tooWide,
} from './lib.mjs';

const kSliders = {
  Temperature: 'temperature',
  'Top p': 'top_p',
  'Min p': 'min_p',
  'Repetition penalty': 'repetition_penalty',
};

const kWide = `A line of code that is long:

\`\`\`cpp
const auto answer = mill.turn(wheel, water).and_then(grind, {.grain = "wheat", .stones = 2, .speed = 12.5}).value_or(0);
\`\`\`

| one | two | three | four | five | six | seven |
|---|---|---|---|---|---|---|
| a long cell | another long cell | and one more | and again | and again | and again | the last |

$$a_1 + a_2 + a_3 + a_4 + a_5 + a_6 + a_7 + a_8 + a_9 + a_{10} + a_{11} + a_{12} + a_{13} + a_{14} = \\sum_i a_i$$

${'averylongword'.repeat(20)}
`;

const focused = (page) =>
  page.evaluate(() => {
    const at = document.activeElement;
    return at?.getAttribute('aria-label') ?? at?.textContent?.trim() ?? '';
  });

// Presses Tab until the focus is on something of this name.
async function tabTo(page, name, most = 80) {
  const passed = [];
  for (let i = 0; i < most; ++i) {
    await page.keyboard.press('Tab');
    const here = await focused(page);
    if (here === name) return;
    passed.push(here.slice(0, 30));
  }
  throw new Error(`Tab does not come to ${name}; it came by ${passed.join(' | ')}`);
}

export async function use(page, server) {
  await test('sliders stand where the server has them, move by keyboard, and go back', async () => {
    const { default_generation_settings: own } = await (await fetch(`${server.url}/props`)).json();
    await settings(page, async () => {
      await page.getByRole('button', { name: "Back to the server's defaults" }).click();
      for (const [label, name] of Object.entries(kSliders)) {
        const slider = page.getByRole('slider', { name: `${label}, slider` });
        const number = page.getByRole('spinbutton', { name: label, exact: true });
        const usual = own.params[name];
        check(
          Math.abs(Number(await slider.inputValue()) - usual) < 1e-6,
          `${label} stands at ${await slider.inputValue()}, not ${usual}`,
        );
        check(
          (await number.inputValue()) === '' && Number(await number.getAttribute('placeholder')) === usual,
          `${label}: the number`,
        );
        await slider.focus();
        await page.keyboard.press('ArrowLeft');
        await page.keyboard.press('ArrowRight');
        await page.keyboard.press('ArrowRight');
        const moved = Number(await slider.inputValue());
        const most = Number(await slider.getAttribute('max'));
        check(moved > usual || usual >= most, `${label} did not move from ${usual}`);
        check(Number(await number.inputValue()) === moved, `${label} shows ${await number.inputValue()}, not ${moved}`);
        await page.keyboard.press('Home');
        check(Number(await number.inputValue()) === Number(await slider.getAttribute('min')), `${label}: Home`);
        await number.fill('');
        await page.keyboard.press('Tab');
        check(Math.abs(Number(await slider.inputValue()) - usual) < 1e-6, `${label}: emptied, it is not the server's`);
        await slider.focus();
        await page.keyboard.press('End');
        await page.getByRole('button', { name: `${label}: as the server has it` }).press('Enter');
        check((await number.inputValue()) === '', `${label}: reset`);
      }
    });
  });

  await test('what was set is sent, and what was not is left to the server', async () => {
    const bodies = await pretend(page, 'fine');
    await settings(page, () => page.getByRole('spinbutton', { name: 'Temperature' }).fill('0.35'));
    await fresh(page);
    await ask(page, 'Hello');
    await answered(page, 1);
    check(
      bodies[0].temperature === 0.35 && !('top_p' in bodies[0]) && !('tools' in bodies[0]),
      JSON.stringify(bodies[0]),
    );
    await settings(page, () => page.getByRole('button', { name: "Back to the server's defaults" }).click());
    await ask(page, 'Hello again');
    await answered(page, 2);
    check(!('temperature' in bodies[1]), 'the temperature is still sent');
    await page.unroute('**/v1/chat/completions');
  });

  await test('the keyboard alone is enough', async () => {
    const typist = await open(server.url);
    await setting(typist, 'Longest answer', 24);
    await typist.reload();
    await typist.waitForSelector('[data-state=connected]');
    await typist.evaluate(() => document.activeElement?.blur());
    // The focus was at the question, which is last: the next stop is outside of the page, and then its first.
    await tabTo(typist, 'Skip to the question', 4);
    await typist.keyboard.press('Enter');
    await typist.keyboard.type('Hello wheel');
    await typist.keyboard.press('Enter');
    await answered(typist, 1);
    // The answer lies before the question in the order of the page.
    await typist.keyboard.press('Shift+Tab');
    await typist.evaluate(() => document.querySelector('.scroller').focus());
    await tabTo(typist, 'Regenerate');
    await typist.keyboard.press('Enter');
    await typist.waitForSelector('.versions');
    await answered(typist, 1);
    await typist.evaluate(() => document.querySelector('.scroller').focus());
    await tabTo(typist, 'Earlier version');
    await typist.keyboard.press('Space');
    await typist.waitForFunction(() => /1 \/ 2/.test(document.querySelector('.versions').textContent));
    await typist.keyboard.press('/');
    check(
      (await focused(typist)) !== '/' && (await typist.evaluate(() => document.activeElement.id)) === 'question',
      '/ goes to the question',
    );
    await typist.keyboard.press('ArrowUp');
    await typist.waitForSelector('.editor textarea');
    await typist.keyboard.press('Escape');
    await typist.keyboard.press('Alt+s');
    await typist.waitForSelector('#settings');
    await typist.keyboard.press('Escape');
    await typist.waitForSelector('#settings', { state: 'detached' });
    await typist.keyboard.press('Alt+n');
    await typist.waitForSelector('.welcome');
    await typist.context().close();
  });

  await test('no barriers in chat and settings, light and dark', async () => {
    await page.locator('.list li button').first().click();
    await page.getByRole('button', { name: 'Settings', exact: true }).click();
    for (const colorScheme of ['light', 'dark']) {
      await page.emulateMedia({ colorScheme });
      await barriers(page, colorScheme);
      await shot(page, `settings-${colorScheme}`);
    }
    await page.getByRole('button', { name: 'Close settings' }).click();
    await page.emulateMedia({ colorScheme: 'light' });
  });

  await test('a screen of 360 pixels: everything fits, conversations open as a drawer', async () => {
    const phone = await open(server.url, {
      viewport: { width: 360, height: 720 },
      hasTouch: true,
      colorScheme: 'dark',
    });
    await pretend(phone, kWide);
    await phone.setInputFiles('[data-attach]', fileOf(`${'long-name-'.repeat(12)}.txt`, 'x'));
    await phone.waitForSelector('.composer .chip');
    check((await tooWide(phone)) <= 0, `the composer is ${await tooWide(phone)} pixels too wide`);
    await ask(phone, 'Hello there, how are you today?');
    await answered(phone);
    await phone.waitForSelector('.katex-display');
    check((await tooWide(phone)) <= 0, `chat is ${await tooWide(phone)} pixels too wide`);
    const over = await phone.evaluate(() => {
      const box = document.querySelector('.scroller');
      return box.scrollWidth - box.clientWidth;
    });
    check(over <= 0, `the conversation is ${over} pixels too wide`);
    await barriers(phone, 'phone, chat');
    await shot(phone, 'phone-chat');
    await phone.getByRole('button', { name: 'Settings', exact: true }).click();
    check((await tooWide(phone)) <= 0, 'the settings are too wide');
    await barriers(phone, 'phone, settings');
    await shot(phone, 'phone-settings');
    await phone.getByRole('button', { name: 'Close settings' }).click();
    await phone.getByRole('button', { name: 'Conversations' }).click();
    await phone.waitForSelector('.side.shown');
    check(await phone.getByRole('button', { name: 'New conversation' }).isVisible(), 'the drawer is empty');
    await barriers(phone, 'drawer');
    await shot(phone, 'phone-drawer');
    await phone.keyboard.press('Escape');
    await phone.click('.views a[href="#live"]');
    await phone.waitForSelector('.tile b');
    check((await tooWide(phone)) <= 0, `live view is ${await tooWide(phone)} pixels too wide`);
    await shot(phone, 'phone-live');
    await barriers(phone, 'phone, live view');
    await phone.context().close();
  });
}
