/** A timestamp in the API's form, whole seconds in UTC: `2026-11-21T01:51:57Z`. */
export function timestamp(nowMs: number): string {
  return `${new Date(nowMs).toISOString().slice(0, 19)}Z`;
}

/** The time since a timestamp, in the form of kubectl's AGE column. */
export function ageOf(since: string, nowMs: number): string {
  const sinceMs = Date.parse(since);
  if (Number.isNaN(sinceMs)) return '<unknown>';
  const seconds = Math.max(0, Math.trunc((nowMs - sinceMs) / 1000));
  if (seconds < 120) return `${seconds}s`;
  const minutes = Math.trunc(seconds / 60);
  if (minutes < 10) return two(minutes, 'm', seconds % 60, 's');
  if (minutes < 180) return `${minutes}m`;
  const hours = Math.trunc(minutes / 60);
  if (hours < 8) return two(hours, 'h', minutes % 60, 'm');
  return hours < 48 ? `${hours}h` : `${Math.trunc(hours / 24)}d`;
}

function two(big: number, bigUnit: string, small: number, smallUnit: string): string {
  return small === 0 ? `${big}${bigUnit}` : `${big}${bigUnit}${small}${smallUnit}`;
}
