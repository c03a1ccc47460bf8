import { Redis } from 'ioredis';

/** A connection that sends the commands of one turn of the event loop in one write, since each
 * write costs a system call and may wake up Redis. Commands keep their order, and each fails or is
 * sent again by itself. (ioredis' enableAutoPipelining waits for all answers to one write before
 * the next, and rejects the rest of a write if the connection is lost after its first answer.) */
export class JoinedWritesRedis extends Redis {
  #isJoining = false;

  /** ioredis calls this for each command, also for those of scripts and of pipelines. */
  override sendCommand(...parameters: Parameters<Redis['sendCommand']>): unknown {
    if (!this.#isJoining && this.status === 'ready') this.#joinWrites();
    return super.sendCommand(...parameters);
  }

  /** Keeps what is written until the event loop has handled what came in meanwhile. A stream that
   * ends earlier writes it then. */
  #joinWrites(): void {
    const { stream } = this;
    this.#isJoining = true;
    stream.cork();
    setImmediate(() => {
      this.#isJoining = false;
      stream.uncork();
    });
  }
}
