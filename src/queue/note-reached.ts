import { CsiError } from '../csi/status.ts';
import type { Run } from './consumer.ts';

/** Tells the consumer when the driver itself has answered a call of the run, whatever it said.
 * @returns what the call gives */
export async function noteReached<T>(
  { reachedDriver }: Pick<Run, 'reachedDriver'>,
  call: Promise<T>,
): Promise<T> {
  try {
    const answer = await call;
    reachedDriver();
    return answer;
  } catch (error) {
    if (error instanceof CsiError && error.driverSaid) reachedDriver();
    throw error;
  }
}
