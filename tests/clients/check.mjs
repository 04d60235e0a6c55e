// What the scripts of this folder share: checks that print a line each, and count.
let failures = 0;

export async function check(what, body) {
  try {
    await body();
    console.log(`ok - ${what}`);
  } catch (failure) {
    failures += 1;
    console.log(
      `not ok - ${what}\n  ${String(failure?.stack ?? failure)
        .split('\n')
        .join('\n  ')}`,
    );
  }
}

// The status a request is refused with.
export async function status(promise) {
  try {
    await promise;
  } catch (failure) {
    const said = failure.status ?? failure.status_code ?? failure.statusCode ?? failure.lastError?.statusCode;
    return said ?? String(failure);
  }
  return 'no error';
}

export function done() {
  process.exit(failures === 0 ? 0 : 1);
}
