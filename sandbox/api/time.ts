const TIME = /^(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:[.,](\d+))?(Z|[+-]\d\d:\d\d)$/;
const MICRO = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)$/;

/** A timestamp in the API's form, whole seconds in UTC: `2026-11-21T01:51:57Z`. */
export function timestamp(nowMs: number): string {
  return `${new Date(nowMs).toISOString().slice(0, 19)}Z`;
}

/** A `Time` in its stored form (whole seconds, UTC); undefined where the text is no RFC 3339 time.
 */
export function canonicalTime(text: string): string | undefined {
  if (!TIME.test(text)) return undefined;
  const ms = Date.parse(text.replace(',', '.'));
  return Number.isNaN(ms) ? undefined : timestamp(ms);
}

/** A `MicroTime` in its stored form; undefined where the text is none. It must have exactly six
 * fraction digits: the real server answers 400 for any other number. */
export function canonicalMicroTime(text: string): string | undefined {
  if (!MICRO.test(text)) return undefined;
  const fraction = text.slice(20, 26);
  const ms = Date.parse(`${text.slice(0, 19)}${text.slice(26)}`);
  return Number.isNaN(ms) ? undefined : `${new Date(ms).toISOString().slice(0, 19)}.${fraction}Z`;
}

/** The time since then, in the form of kubectl's AGE column. */
export function ageOf(sinceText: string | undefined | null, nowMs: number): string {
  const sinceMs = typeof sinceText === 'string' ? Date.parse(sinceText) : Number.NaN;
  if (Number.isNaN(sinceMs)) return '<unknown>';
  const seconds = Math.trunc((nowMs - sinceMs) / 1000);
  if (seconds < -1) return '<invalid>';
  if (seconds < 120) return `${Math.max(seconds, 0)}s`;
  const minutes = Math.trunc(seconds / 60);
  if (minutes < 10) return two(minutes, 'm', seconds % 60, 's');
  if (minutes < 180) return `${minutes}m`;
  const hours = Math.trunc(minutes / 60);
  if (hours < 8) return two(hours, 'h', minutes % 60, 'm');
  if (hours < 48) return `${hours}h`;
  const days = Math.trunc(hours / 24);
  if (days < 8) return two(days, 'd', hours % 24, 'h');
  if (days < 730) return `${days}d`;
  const years = Math.trunc(days / 365);
  return years < 8 ? two(years, 'y', days % 365, 'd') : `${years}y`;
}

function two(big: number, bigUnit: string, small: number, smallUnit: string): string {
  return small === 0 ? `${big}${bigUnit}` : `${big}${bigUnit}${small}${smallUnit}`;
}
