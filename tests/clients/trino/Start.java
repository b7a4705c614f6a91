// SPDX-License-Identifier: Apache-2.0
/** Starts Trino from the jars on the class path; the argument is its version. */
public final class Start {
    public static void main(String[] args) {
        new io.trino.server.Server().start(args[0]);
    }
}
