import { createHmac, hkdfSync, timingSafeEqual } from 'node:crypto';

/* Seals of volume records: who may write to Redis, and has not the key, can't make a record that
 * jobs use. A seal covers what a later run sends to the driver or writes into a PV: the request,
 * the PV template, the references of secrets, and the driver's answer, each together with the
 * driver and the record's id. Not the state of the record, nor the gateway, which Redis' scripts
 * choose: jobs call no gateway that their flags don't name. docs/security.md says what is left to
 * an attacker. */

/** What the file of --record-key-file says. */
export interface RecordKeys {
  /** The first one seals; a seal by any of them is right. */
  readonly keys: readonly Buffer[];
  /** Records without a seal are used too, as those from before the flag was set. */
  readonly isUnsealedAccepted: boolean;
}

/** The line that accepts records without a seal. */
const UNSEALED = 'unsealed';
const SHORTEST_KEY = 32;

/** Reads the lines of a key file.
 * @throws Error that quotes no key */
export function parseRecordKeys(text: string): RecordKeys {
  const lines = text.split('\n').map((line) => line.trim());
  const secrets = lines.filter((line) => line !== '' && line !== UNSEALED);
  if (secrets.length === 0 || secrets.some(({ length }) => length < SHORTEST_KEY))
    throw new Error(
      `each line has to be a key of ${SHORTEST_KEY} characters or more (openssl rand -hex 32), ` +
        `or the word "${UNSEALED}", and one has to be a key`,
    );
  const keys = secrets.map((secret) =>
    Buffer.from(hkdfSync('sha256', secret, '', 'sutler volume record', 32)),
  );
  return { keys, isUnsealedAccepted: lines.includes(UNSEALED) };
}

/** The seal of a part of a record; '' without a key.
 * @param part  all that it covers: prefix, driver, the record's id, name and texts of the part */
export function sealOf(known: RecordKeys | undefined, part: readonly string[]): string {
  const key = known?.keys[0];
  return key === undefined ? '' : digest(key, part).toString('base64url');
}

/** @returns whether a worker of ours wrote the part; false: unknown, and nothing is asked for
 * @throws Error for a missing or wrong seal */
export function checkSeal(
  known: RecordKeys | undefined,
  part: readonly string[],
  seal: string,
): boolean {
  if (known === undefined || (seal === '' && known.isUnsealedAccepted)) return false;
  if (seal === '') throw new Error('it has no seal');
  const found = Buffer.from(seal, 'base64url');
  const isRight = known.keys.some((key) => {
    const right = digest(key, part);
    return found.length === right.length && timingSafeEqual(found, right);
  });
  if (!isRight) throw new Error('it has a seal by no key of --record-key-file');
  return true;
}

function digest(key: Buffer, part: readonly string[]): Buffer {
  return createHmac('sha256', key).update(JSON.stringify(part)).digest();
}
