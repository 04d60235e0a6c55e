// What answers are made of: Markdown, code, formulas, JSON, thoughts, calls of tools; and that none of it can hurt.
import { answered, barriers, check, messages, real, settings, shot, show, test } from './lib.mjs';

const kHostile = [
  '<img src=x onerror="window.hurt=1"> <script>window.hurt=1</script> <!-- <b> -->',
  '[link](javascript:window.hurt=1) [fine](https://example.org/a?b=1) ![picture](https://example.org/p.png)',
  '[a](jav&#x61;script:window.hurt=1) [b](JaVaScRiPt:window.hurt=1) [c](data:text/html,<script>window.hurt=1</script>)',
  '[d](vbscript:x) [e](\\x6aavascript:x) [f](/v1/models) [g](//example.com/) [h][ref] <javascript:window.hurt=1>',
  '[ref]: javascript:window.hurt=1 "title"',
  '[i](https://example.org/"onmouseover="window.hurt=1) <https://example.org/auto>',
  '`<b>` **<i>x</i>** | a | b |',
  '| <u>a</u> | b |\n|---|---|\n| <svg onload=alert(1)> | 2 |',
  '```html\n<script>window.hurt=1</script>\n```',
  '```"><img src=x onerror=window.hurt=1>\nx\n```',
  '$\\href{javascript:window.hurt=1}{x}$ $\\url{javascript:window.hurt=1}$ $\\htmlData{onclick=window.hurt=1}{x}$',
  '$\\includegraphics{https://example.com/x.png}$ $\\htmlStyle{background:url(//example.com)}{x}$ $<img src=x onerror=1>$',
  '$$\\def\\a{\\a\\a}\\a$$',
  '$$\\rule{99999em}{99999em}$$',
  `${'> '.repeat(400)}deep`,
  `${'- '.repeat(300)}deep`,
  `${'*_~['.repeat(20000)}`,
  `${'\\('.repeat(20000)}`,
  `${'$$ '.repeat(5000)}`,
  `${'**a*'.repeat(5000)}`,
].join('\n\n');

const kRich = `# A heading

Text with **strong**, *soft*, ~~gone~~ and \`code\`, a [link](https://example.org/) and a price of $5 or $10.

- [x] mill the grain
- [ ] open the gate
  - nested

1. first
2. second

| name | speed |
|:---|---:|
| wheel | 12 |

> quoted

\`\`\`python
def mill(grain):  # turns
    return [x * 2 for x in grain if x > 0.5]
\`\`\`

\`\`\`nolanguage
plain <b>text</b>
\`\`\`

Euler: $e^{i\\pi} + 1 = 0$, and \\(a^2\\). A broken one: $\\frac{1$ and $\\nosuch{1}$.

$$
\\int_0^1 x^2\\,dx = \\frac{1}{3}
$$

\\[ \\sum_{n=1}^\\infty \\frac{1}{n^2} = \\frac{\\pi^2}{6} \\]
`;

const kTool = [
  { role: 'assistant', content: null },
  { tool_calls: [{ index: 0, id: 'call_1', type: 'function', function: { name: 'get_weather', arguments: '' } }] },
  { tool_calls: [{ index: 0, function: { arguments: '{"city": "Par' } }] },
  { tool_calls: [{ index: 0, function: { arguments: 'is", "days": [1, 2]}' } }] },
];

const kSchema = {
  type: 'object',
  properties: { wheel: { enum: ['wood', 'iron'] }, turns: { type: 'integer', minimum: 1, maximum: 9 } },
  required: ['wheel', 'turns'],
  additionalProperties: false,
};

const inside = (page) => page.locator('article.answer').last();

export async function content(page) {
  await test('what a model writes cannot become markup', async () => {
    await show(page, kHostile);
    await page.waitForSelector('.formula');
    const made = await page.evaluate(() => {
      const inside = document.querySelector('article.answer .markdown');
      const tags = [
        ...inside.querySelectorAll('img,script,b,i,u,svg:not(.icon):not(.katex svg),iframe,object,embed,style'),
      ];
      const attributes = [...inside.querySelectorAll('*')].flatMap((e) => [...e.attributes].map((a) => a.name));
      const links = [...inside.querySelectorAll('[href],[src],[action]')].map(
        (a) => a.getAttribute('href') ?? a.outerHTML,
      );
      return {
        tags: tags.map((e) => e.tagName),
        on: attributes.filter((n) => n.startsWith('on')),
        hurt: window.hurt,
        links,
      };
    });
    check(made.hurt === undefined && made.tags.length === 0, `markup came through: ${made.tags} ${made.hurt}`);
    check(made.on.length === 0, `handlers came through: ${made.on}`);
    const strange = made.links.filter((l) => !l.startsWith('https://example.org/'));
    check(made.links.length > 2 && strange.length === 0, `links to ${strange}`);
  });

  await test('the browser makes no elements of HTML text here', async () => {
    const [noted, said] = await Promise.all([
      page.waitForEvent('console', (message) => /TrustedHTML/.test(message.text())),
      page.evaluate(() => {
        try {
          document.createElement('div').innerHTML = '<b>x</b>';
          return 'made';
        } catch (refused) {
          return refused.name;
        }
      }),
    ]);
    check(said === 'TypeError', `HTML text was ${said}`);
    messages.splice(messages.indexOf(noted.text()), 1); // this one was wanted
  });

  await test('Markdown: lists, tasks, tables, code with colours', async () => {
    await show(page, kRich);
    await page.waitForSelector('.hljs-keyword');
    const answer = inside(page);
    check((await answer.locator('h3').textContent()) === 'A heading', 'the heading');
    check((await answer.locator('li.task input').count()) === 2, 'tasks');
    check(await answer.locator('li.task input').first().isChecked(), 'the first task is done');
    check(!(await answer.locator('li.task input').nth(1).isChecked()), 'the second is not');
    check((await answer.locator('s').textContent()) === 'gone', 'strikethrough');
    check(
      (await answer.locator('ol li').count()) === 2 && (await answer.locator('td.end').count()) === 1,
      'list and table',
    );
    const code = answer.locator('figure.code');
    check((await code.nth(0).locator('code').textContent()).includes('return [x * 2 for x in grain'), 'the code');
    check((await code.nth(0).locator('.hljs-comment').textContent()) === '# turns', 'the comment has a colour');
    check((await code.nth(1).locator('span[class^=hljs]').count()) === 0, 'an unknown language has no colours');
    check((await code.nth(1).locator('code').textContent()) === 'plain <b>text</b>', 'its text is whole');
    check((await answer.textContent()).includes('a price of $5 or $10'), 'prices are no formulas');
  });

  await test('formulas are set, with fonts of this server', async () => {
    await page.waitForSelector('.katex');
    const answer = inside(page);
    check((await answer.locator('.katex-display').count()) === 2, 'two formulas stand by themselves');
    check((await answer.locator('.formula:not(.raw)').count()) === 4, 'not all formulas are set');
    const raw = await answer.locator('.formula.raw').allTextContents();
    check(raw.join() === '\\frac{1,\\nosuch{1}', `what KaTeX does not know stands as ${raw}`);
    const fonts = await page.evaluate(async () => {
      await document.fonts.ready;
      return [...document.fonts].filter((f) => f.family.includes('KaTeX') && f.status === 'loaded').length;
    });
    check(fonts >= 2, `${fonts} fonts of KaTeX were loaded`);
    await page.evaluate(() => document.querySelector('.scroller').scrollTo(0, 0));
    await shot(page, 'rich');
    for (const colorScheme of ['light', 'dark']) {
      await page.emulateMedia({ colorScheme });
      await barriers(page, `rich answer, ${colorScheme}`);
      await shot(page, `rich-${colorScheme}`);
    }
    await page.emulateMedia({ colorScheme: 'light' });
  });

  await test('an answer that comes letter by letter looks like one that comes at once', async () => {
    const shape = () => page.evaluate(() => document.querySelector('article.answer .markdown').outerHTML);
    await show(page, kRich);
    await page.waitForSelector('.katex-display');
    const whole = await shape();
    await show(
      page,
      [...kRich].map((content) => ({ content })),
    );
    await page.waitForSelector('.katex-display');
    check((await shape()) === whole, 'the two differ');
  });

  await test('thoughts are folded away once the answer comes', async () => {
    await show(page, [
      { reasoning_content: 'The wheel **turns**.' },
      { reasoning_content: ' So.' },
      { content: 'Yes.' },
    ]);
    const details = page.locator('details.thinking');
    check(!(await details.evaluate((d) => d.open)), 'they are open');
    await details.locator('summary').focus();
    await page.keyboard.press('Enter');
    check((await details.locator('.markdown').textContent()) === 'The wheel turns. So.', 'they are not shown');
    check(
      (await page.locator('article.answer > .markdown').textContent()) === 'Yes.',
      'the answer has the thoughts in it',
    );
    await shot(page, 'thinking');
    await barriers(page, 'thoughts');
    await page.keyboard.press('Enter');
    check(!(await details.evaluate((d) => d.open)), 'they do not close');
  });

  await test('calls of tools are drawn, and their results go back', async () => {
    await show(page, kTool, 'tool_calls');
    const card = page.locator('.call');
    check((await card.locator('h3').textContent()).trim() === 'get_weather', 'the name');
    check(/city: "Paris"/.test(await card.locator('.json').textContent()), 'the arguments');
    await shot(page, 'call');
    await barriers(page, 'call');
    const bodies = [];
    await page.route('**/v1/chat/completions', (route) => {
      bodies.push(route.request().postDataJSON());
      const event = { choices: [{ index: 0, delta: { content: 'Sunny.' } }] };
      const body = `data: ${JSON.stringify(event)}\n\ndata: [DONE]\n\n`;
      return route.fulfill({ contentType: 'text/event-stream', body });
    });
    await page.getByLabel('What it gave').fill('{"sky": "blue"}');
    await page.getByRole('button', { name: 'Send result' }).click();
    await answered(page, 2);
    const [, call, result] = bodies[0].messages;
    check(
      call.tool_calls?.[0]?.id === 'call_1' && JSON.parse(call.tool_calls[0].function.arguments).city === 'Paris',
      `the call went back as ${JSON.stringify(call)}`,
    );
    check(
      result.role === 'tool' && result.tool_call_id === 'call_1' && result.content === '{"sky": "blue"}',
      `the result went back as ${JSON.stringify(result)}`,
    );
    check(/get_weather/.test(await page.textContent('article.result')), 'the result is not shown');
    await real(page);
  });

  await test('an answer by a schema is JSON, drawn as a tree', async () => {
    await settings(page, async () => {
      await page.getByLabel('Form of the answer').selectOption('schema');
      await page.getByLabel('JSON schema').fill('{"type": ');
      await page.waitForSelector('#schema-problem');
      await page.getByLabel('JSON schema').fill(JSON.stringify(kSchema));
      await page.waitForSelector('#schema-problem', { state: 'detached' });
      await page.getByRole('spinbutton', { name: 'Longest answer' }).fill('400');
    });
    await page.getByRole('button', { name: 'New conversation' }).click();
    await page.fill('#question', 'Describe the wheel.');
    await page.press('#question', 'Enter');
    await answered(page, 1);
    const tree = page.locator('article.answer .json');
    check(/wheel: "(wood|iron)"/.test(await tree.textContent()), `the tree says '${await tree.textContent()}'`);
    check((await tree.locator('.json-number').count()) === 1, 'the number');
    await shot(page, 'json');
    await barriers(page, 'JSON');
    await page.getByRole('button', { name: 'As text' }).click();
    const value = JSON.parse(await page.textContent('article.answer pre.loose'));
    check(['wood', 'iron'].includes(value.wheel) && value.turns >= 1 && value.turns <= 9, JSON.stringify(value));
    await settings(page, async () => {
      await page.getByLabel('Form of the answer').selectOption('text');
      await page.getByRole('spinbutton', { name: 'Longest answer' }).fill('32');
    });
  });

  await test('JSON that is deep or long is shown in parts', async () => {
    await show(page, `{"deep": ${'['.repeat(3000)}${']'.repeat(3000)}, "long": [${Array(5000).fill(7)}]}`);
    check((await page.locator('.json li').count()) < 100, 'all of it was built');
    await page.getByRole('button', { name: '4950 more' }).click();
    await page.waitForFunction(() => document.querySelectorAll('.json-number').length === 200);
  });
}
