// The page in a real browser, against the real server: node browser.mjs MILLRACE. Prints one line per test for ./test.
// With SHOTS=FOLDER it leaves screenshots there; ONLY=WORDS runs the tests whose names have them.
import { chat } from './chat.mjs';
import { content } from './content.mjs';
import { keeping } from './keeping.mjs';
import { browser, check, failures, messages, open, serve, strangers, test } from './lib.mjs';
import { live } from './live.mjs';
import { reach } from './reach.mjs';
import { use } from './use.mjs';

const server = await serve();
const page = await open(server.url);
await chat(page, server);
await content(page);
await keeping(page, server);
await use(page, server);
await live(page, server);
await reach();

await test('nothing was asked of anybody else, and nothing went wrong unseen', async () => {
  check(strangers.length === 0, `requests to ${strangers.slice(0, 3).join(', ')}`);
  // The browser notes failed requests by itself: those the tests made fail are expected.
  const unexpected = messages.filter(
    (text) => !/status of (401|429|503)|ERR_CONNECTION|ERR_INCOMPLETE|ERR_EMPTY/.test(text),
  );
  check(unexpected.length === 0, unexpected.slice(0, 5).join('; '));
});

await browser.close();
await server.end();
process.exit(failures() > 0 ? 1 : 0);
