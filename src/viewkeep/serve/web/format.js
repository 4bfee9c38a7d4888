// Figures as people read them.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const tenth = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const exactTenth = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

export const count = (value) => (value === null || value === undefined ? "–" : whole.format(value));

export const plural = (value, one, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`;

// A rate: small ones keep a digit, so that one row in ten seconds is not nothing.
export function rate(value) {
  if (value === null || value === undefined) return "–";
  return value > 0 && value < 10 ? tenth.format(Math.max(value, 0.1)) : whole.format(value);
}

// [figure, unit]
export function sized(bytes) {
  if (bytes === null || bytes === undefined) return ["–", ""];
  let at = 0;
  let value = bytes;
  while (value >= 1024 && at < UNITS.length - 1) {
    value /= 1024;
    at += 1;
  }
  return [at === 0 || value >= 100 ? whole.format(value) : tenth.format(value), UNITS[at]];
}
export const size = (bytes) => sized(bytes).join(" ").trim();

// [figure, unit]
export function lasting(seconds) {
  if (seconds === null || seconds === undefined) return ["–", ""];
  if (seconds === 0) return ["0", "s"];
  if (seconds < 1) return [whole.format(Math.max(1, seconds * 1000)), "ms"];
  if (seconds < 10) return [exactTenth.format(seconds), "s"];
  if (seconds < 100) return [whole.format(seconds), "s"];
  if (seconds < 5400) return [whole.format(seconds / 60), "min"];
  if (seconds < 172800) return [tenth.format(seconds / 3600), "h"];
  return [tenth.format(seconds / 86400), "days"];
}
export const duration = (seconds) => lasting(seconds).join(" ").trim();

export const clock = (seconds) =>
  new Date(seconds * 1000).toLocaleTimeString("en-GB", { hour12: false });

export const percent = (share) => `${Math.floor(share * 100)} %`;
