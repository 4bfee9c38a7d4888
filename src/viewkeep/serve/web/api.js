// Talking to the server: JSON in and out, and the live stream, which comes back by itself.

// What the server, or the way to it, says against a request; `hint` is what would work.
export class Refused extends Error {
  constructor(message, { hint = null, fragment = null } = {}) {
    super(message);
    Object.assign(this, { hint, fragment });
  }
}

export async function ask(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, { headers: { accept: "application/json" }, ...options });
  } catch {
    throw new Refused("the server does not answer");
  }
  let value = null;
  try {
    value = await answer.json();
  } catch {
    throw new Refused(`the server answered ${answer.status} without saying why`);
  }
  if (!answer.ok) throw new Refused(value.error?.message || `the server answered ${answer.status}`, value.error);
  return value;
}

export const send = (path, value) =>
  ask(path, {
    method: "POST",
    headers: { "content-type": "application/json", accept: "application/json" },
    body: JSON.stringify(value),
  });

export function query(path, values) {
  const asked = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (value === null || value === undefined) continue;
    for (const one of Array.isArray(value) ? value : [value]) asked.append(name, one);
  }
  return ask(`${path}?${asked}`);
}

const FIRST_WAIT = 500;
const LONGEST_WAIT = 8000;
const SILENCE = 10000; // a sample comes every second; after so long without one the line is dead

// Calls `on.open`, `on.lost`, and `on[event]` with the parsed data of each event.
export function follow(path, on) {
  let wait = FIRST_WAIT;
  let source = null;
  let silence = null;

  const heard = () => {
    clearTimeout(silence);
    silence = setTimeout(lost, SILENCE);
  };
  const lost = () => {
    clearTimeout(silence);
    source.close();
    on.lost();
    setTimeout(connect, wait);
    wait = Math.min(LONGEST_WAIT, wait * 2);
  };
  const connect = () => {
    source = new EventSource(path);
    source.onopen = () => {
      wait = FIRST_WAIT;
      heard();
      on.open();
    };
    source.onerror = lost;
    for (const name of ["sample", "figures"]) {
      source.addEventListener(name, (event) => {
        heard();
        on[name](JSON.parse(event.data));
      });
    }
  };
  connect();
}
