/** Numbers and times as people read them. */

const DASH = "–";

/** A number with three digits: 0.123, 12.3, 1,230, 45.6 k. */
export function number(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return DASH;
  if (value >= 1e9) return `${short(value / 1e9)} G`;
  if (value >= 1e6) return `${short(value / 1e6)} M`;
  if (value >= 1e5) return `${short(value / 1e3)} k`;
  return short(value);
}

function short(value) {
  if (value === 0) return "0";
  if (value >= 100) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(3)));
}

export function bytes(value) {
  if (value === null || value === undefined) return DASH;
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit++;
  }
  return `${short(value)} ${units[unit]}`;
}

/** A duration that is given in milliseconds. */
export function duration(ms) {
  if (ms === null || ms === undefined) return DASH;
  if (ms < 1) return `${short(ms * 1000)} µs`;
  if (ms < 1000) return `${short(ms)} ms`;
  if (ms < 120e3) return `${short(ms / 1000)} s`;
  if (ms < 7200e3) return `${Math.round(ms / 60e3)} min`;
  if (ms < 172800e3) return `${Math.round(ms / 3600e3)} h`;
  return `${Math.round(ms / 86400e3)} d`;
}

/** A time of the server ("2026-11-21T04:36:32.123Z") as the hour of this machine. */
export function time(text) {
  const date = text ? new Date(text) : null;
  return date && !Number.isNaN(date.getTime()) ? date.toLocaleString() : DASH;
}
